"""The commands of a device: light, and helpful when mistyped, with or without torch."""

import subprocess
import sys

import pytest

from penstock.runtime.cli import COMMANDS

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; "


def penstock(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{before}from penstock.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_running_a_bundle_loads_what_it_needs_and_nothing_else() -> None:
    code = "import sys, penstock.cli, penstock.runtime.cli.run; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    own = [name for name in loaded if name.startswith("penstock")]
    assert len(own) <= 29, own
    assert not any(name.startswith(("penstock.runtime.islands", "penstock.runtime.audio")) for name in own)
    heavy = {"torch", "google.protobuf", "grpc", "rich", "typer", "scipy", "matplotlib", "soundfile", "onnxruntime"}
    assert not heavy & set(loaded)


@pytest.mark.parametrize("before", ["", WITHOUT_TORCH])
def test_the_version(before: str) -> None:
    done = penstock("--version", before=before)
    assert done.returncode == 0 and done.stdout.startswith("penstock 0.")


@pytest.mark.parametrize("before", ["", WITHOUT_TORCH])
def test_a_mistyped_command_names_the_near_one(before: str) -> None:
    done = penstock("lisen", before=before)
    assert done.returncode == 2 and "listen" in done.stderr


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    done = penstock(command, "--help", before=WITHOUT_TORCH)
    assert done.returncode == 0 and f"Example: penstock {command}" in done.stdout


def test_a_mistyped_option_names_the_near_one() -> None:
    done = penstock("run", "bundle", "x.npy", "--treads", "2")
    assert done.returncode == 2 and "--threads" in done.stderr


def test_without_torch_the_help_lists_the_commands_of_a_device() -> None:
    done = penstock("--help", before=WITHOUT_TORCH)
    assert done.returncode == 0 and all(command in done.stdout for command in COMMANDS)
    refused = penstock("train", before=WITHOUT_TORCH)
    assert refused.returncode == 1 and "MissingExtraError" in refused.stderr and "penstock[train]" in refused.stderr
