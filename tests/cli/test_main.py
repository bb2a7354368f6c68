"""The commands as listed, mistyped and explained; errors as a person sees them."""

import pytest

from helpers.commands import penstock

COMMANDS = [
    "cuts",
    "train",
    "calibrate",
    "evaluate",
    "compare",
    "export",
    "run",
    "listen",
    "island",
    "up",
    "certs",
    "serve",
    "wakeword",
    "data",
    "demo",
]


def test_commands_are_listed_in_the_order_of_use(typed):
    lines = [line.strip("│ ").split() for line in typed("--help").out.splitlines()]
    assert [words[0] for words in lines if words and words[0] in COMMANDS] == COMMANDS
    groups = [line.strip("│ ").split() for line in typed("wakeword", "--help").out.splitlines()]
    assert [words[0] for words in groups if words and words[0] in ("train", "evaluate")] == ["train", "evaluate"]


@pytest.mark.parametrize(
    "command",
    [(), ("train",), ("evaluate",), ("compare",), ("export",), ("wakeword", "train"), ("wakeword", "evaluate")],
)
def test_help_is_readable_at_80_columns(typed, command):
    text = typed(*command, "--help", columns=80).out
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text, "nothing is cut off"
    assert text.index("Example: penstock") < text.index("Options")


def test_every_command_has_a_help_text(typed):
    text = typed("--help").out
    for command in COMMANDS:
        assert command in text
        assert len(typed(command, "--help").out) > 400
    for command in ("list", "fetch", "check"):
        assert command in typed("data", "--help").out
        assert "Example: penstock data" in typed("data", command, "--help").out


def test_an_error_is_one_line(home):
    done = penstock("cuts", "mine:network", "--shape", "7", cwd=home, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("error: ShapeError: ") and "got (1, 7)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("evaluat",), "'evaluate'"),
        (("isalnd",), "'island'"),
        (("wakeword", "trian"), "'train'"),
        (("cuts", "mine:network", "--shap", "6"), "--shape"),
        (("wakeword", "train", "--max-mis-rate", "0.1"), "--max-miss-rate"),
    ],
)
def test_a_mistyped_command_or_option_names_the_near_ones(typed, arguments, near):
    assert near in typed(*arguments, code=2).err


def test_a_missing_option_is_a_usage_error(typed):
    assert "--shape" in typed("cuts", "mine:network", code=2).err
