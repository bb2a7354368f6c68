"""`penstock wakeword train` and `penstock wakeword evaluate`."""

import json
import sys
from pathlib import Path

import pytest
import soundfile

from helpers.commands import penstock
from helpers.wakeword import CLIPS
from penstock.cli import main
from penstock.cli.wakeword import display_names


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> Path:
    """The same clips as a folder with splits and noise."""
    root = tmp_path_factory.mktemp("clips")
    for part, clip_set in CLIPS.items():
        for word, recordings in clip_set.words.items():
            (root / part / word).mkdir(parents=True)
            for i, clip in enumerate(recordings):
                soundfile.write(root / part / word / f"{i}.wav", clip.samples, 16_000)
    (root / "_background_noise_").mkdir()
    soundfile.write(root / "_background_noise_" / "hiss.wav", CLIPS["train"].noises[0], 16_000)
    return root


@pytest.mark.slow
def test_the_commands_train_and_evaluate(clips, tmp_path):
    options = [
        "--gates",
        "none",
        "--width",
        "4",
        "--windows",
        "1000",
        "--epochs",
        "2",
        "--rounds",
        "0",
        "--hours",
        "0.1",
    ]
    config = ("wakeword", "train", "--word", "tick", "--data", str(clips), "-o", str(tmp_path / "tick"), *options)
    done = penstock(
        *config, "--max-false-alarms", "99", "--max-miss-rate", "0.3", "--json", "--plot", str(tmp_path / "det.png")
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["classes"] == ["background", "tick", "hiss", "hum", "tock"]
    assert result["reached"] == [1.0]
    assert result["miss_bound"] >= result["misses"] / result["spoken"]
    assert (tmp_path / "det.png").stat().st_size > 10_000
    short = ("--data", str(clips), "--hours", "0.1", "--repeats", "1", "--json")
    evaluated = penstock("wakeword", "evaluate", str(tmp_path / "tick"), *short)
    assert evaluated.returncode == 0, evaluated.stderr
    found = json.loads(evaluated.stdout)["tick"]
    assert found["tiny"]["spoken"] == 30
    assert found["tiny"]["hours"] == pytest.approx(1 / 3)
    assert set(found["upkeep"]) == {"silence", "noise", "speech", "keyword"}
    assert [row[0] for row in found["points"]] == sorted(row[0] for row in found["points"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("wakeword", "train", "--word", "tack", "-o", "x"), "has no folder 'tack'"),
        (("wakeword", "evaluate", "x", "--hours", "0"), "--hours"),
    ],
)
def test_a_wrong_argument_is_an_error(arguments, text, clips, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments, "--data", str(clips)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert text in capsys.readouterr().err


def test_bundles_of_one_name_are_shown_with_their_paths():
    assert display_names([Path("a/marvin"), Path("b/plain")]) == ["marvin", "plain"]
    assert display_names([Path("a/marvin"), Path("b/marvin")]) == [str(Path("a/marvin")), str(Path("b/marvin"))]


def test_a_file_in_the_place_of_the_bundle_is_an_error_before_training(clips, tmp_path):
    (tmp_path / "taken").write_text("a file")
    done = penstock("wakeword", "train", "--word", "tick", "--data", str(clips), "-o", str(tmp_path / "taken"))
    assert done.returncode == 1
    assert "taken" in done.stderr.decode() and "StorageError" in done.stderr.decode()
