"""Pictures in, answers out: train on folders of photographs, export, and run the bundle on files and frames."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import penstock as ps
from penstock.datasets import image_folder
from penstock.errors import BundleError, ExportError, ShapeError
from penstock.runtime.cli import run_command

USER_CODE = """
from torch import nn

import penstock as ps
from penstock.datasets import image_folder

IMAGE = ps.ImageConfig(24, 32, share=0.875)

def network():
    def block(channels, filters):
        return nn.Sequential(nn.Conv2d(channels, filters, 3, stride=2), nn.BatchNorm2d(filters), nn.ReLU())

    return nn.Sequential(block(3, 8), block(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))

def data():
    return image_folder("pictures", image=IMAGE, positives=["warm"])
"""
MINE = ("-m", "photos:network", "-d", "photos:data")


def photograph(file: Path, kind: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 120, (*draw.integers(30, 70, 2), 3))
    pixels[..., 0 if kind == "warm" else 2] += 100
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(file, quality=90)


@pytest.fixture
def studio(home, typed):
    """A working directory with photographs as ImageNet has them, and a bundle that was trained on them."""
    if not (home / "photos.py").exists():
        (home / "photos.py").write_text(USER_CODE)
        for part, count in (("train", 24), ("val", 10)):
            for kind in ("warm", "cold"):
                for i in range(count):
                    photograph(
                        home / "pictures" / part / kind / f"{i}.jpg", kind, 1000 * len(part) + 10 * i + len(kind)
                    )
        train = ("--at", "0.5", "--epochs", "3", "--batch-size", "16", "--granularity", "channel", "--rate", "0.03")
        typed("train", *MINE, *train, "-o", "photos.safetensors", "--json")
        typed("calibrate", "photos.safetensors", *MINE, "--max-positive-loss", "0.3", "--json")
        typed("export", "photos.safetensors", *MINE, "-o", "photos", "--json")
    return home


@pytest.fixture
def run(studio, monkeypatch, capsys):
    """Run `penstock run` in this process; return what it printed."""
    monkeypatch.chdir(studio)

    def run(*arguments):
        run_command("run", arguments)
        return capsys.readouterr().out

    return run


def expected(home, monkeypatch) -> tuple[list[Path], ps.GatedNetwork, torch.Tensor]:
    """Return the photographs of val, the network, and what its data set makes of them."""
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(home))
    from photos import IMAGE, network

    data = image_folder("pictures", image=IMAGE, positives=["warm"]).validation
    return data.files, ps.load("photos.safetensors", network()), torch.stack([x for x, _ in data])


def test_files_and_frames_get_the_answers_of_the_network(studio, run, monkeypatch):
    files, net, x = expected(studio, monkeypatch)
    wanted = net.predict(x)
    rows = json.loads(run("photos", "pictures/val", "--json"))
    assert [row["file"] for row in rows] == list(map(str, files))
    names = ["background", "warm"]
    assert [row["label"] for row in rows] == [names[label] for label in wanted.label]
    assert [row["exit_stage"] for row in rows] == wanted.exit_stage.tolist()
    logits = [[np.nan] * 2 if row["logits"] is None else row["logits"] for row in rows]
    np.testing.assert_allclose(logits, wanted.logits.numpy(), atol=1e-4)
    ends = torch.where(wanted.stopped, 1 - wanted.scores[:, 0], wanted.logits.softmax(1).max(1).values)
    np.testing.assert_allclose([row["probability"] for row in rows], ends.numpy(), atol=1e-4)
    assert len({row["stopped"] for row in rows}) == 2, "no gate was put to the test"

    pipeline = ps.Pipeline(ps.Bundle.read("photos"))
    frames = [np.asarray(Image.open(file)) for file in files]
    assert pipeline.predict_images(frames).exit_stage.tolist() == wanted.exit_stage.tolist()
    config = pipeline.manifest.image_config
    assert (
        config == net.image_config
        and np.stack([config.preprocess(frame) for frame in frames]).tobytes() == x.numpy().tobytes()
    )
    assert len(pipeline.predict_images([]).label) == 0
    with pytest.raises(ShapeError, match=r"uint8, got \(3, 24, 32\) float32"):
        pipeline.predict_images(list(x.numpy()))


def test_a_line_for_each_picture(run):
    lines = run("photos", "pictures/val/warm/3.jpg", "pictures/val/cold").splitlines()
    assert len(lines) == 11 and lines[0].startswith("pictures/val/warm/3.jpg  ")
    for line in lines:
        file, label, probability = line.split()[:3]
        assert label in ("warm", "background") and 0 <= float(probability) <= 1 and file.endswith(".jpg")
        assert "stopped by gate 1" in line or "to the end" in line


def test_all_pictures_that_cannot_be_read_are_named_and_nothing_else_is_printed(studio, error_of):
    (studio / "bad").mkdir(exist_ok=True)
    photograph(studio / "bad" / "good.jpg", "warm", 0)
    (studio / "bad" / "cut.jpg").write_bytes((studio / "bad" / "good.jpg").read_bytes()[:200])
    (studio / "bad" / "text.png").write_text("no picture")
    error = error_of("run", "photos", "bad", "missing.jpg", "--json")
    assert "DataError: 3 of 4 images cannot be read" in error
    assert all(name in error for name in ("bad/cut.jpg", "bad/text.png", "missing.jpg")) and "good" not in error


def test_a_bundle_without_preprocessing_says_so(studio, run, error_of, tmp_path, monkeypatch):
    _, _, x = expected(studio, monkeypatch)
    bundle = ps.Bundle.read("photos")
    replace(bundle, manifest=replace(bundle.manifest, image_config=None)).write(tmp_path / "plain")
    assert "BundleError" in (error := error_of("run", str(tmp_path / "plain"), "pictures")) and ".npy" in error
    with pytest.raises(BundleError, match=r"image_config.*ImageConfig"):
        ps.Pipeline(ps.Bundle.read(tmp_path / "plain")).predict_images([])
    np.save(tmp_path / "x.npy", x.numpy())
    assert "20 samples" in run("photos", str(tmp_path / "x.npy"))


def test_a_network_and_its_preprocessing_go_together(studio, tmp_path, monkeypatch):
    _, net, x = expected(studio, monkeypatch)
    ps.save(net, tmp_path / "again")
    assert ps.load(tmp_path / "again", sys.modules["photos"].network()).image_config == net.image_config
    net.image_config = ps.ImageConfig(32, 24)
    with pytest.raises(ExportError, match=r"image_config for inputs \(3, 24, 32\), float32, got \(3, 32, 24\)"):
        ps.export_bundle(net, x[:2], tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_folder_without_a_test_split_says_which_there_are(studio, error_of):
    error = error_of("evaluate", "photos.safetensors", *MINE)
    assert "no split 'test', only train, validation" in error
