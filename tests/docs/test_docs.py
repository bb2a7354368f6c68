"""Run the documentation: every Python block and every shell line of README.md and docs/, page by page and in order.

A page runs in a folder of its own that `SETUP` prepares; its Python blocks share one namespace. What cannot run as
written stands in one of the tables below, with the reason. `text` and `json` blocks are not code; no block is untagged.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tomllib
import torch
from PIL import Image
from torch import nn

import penstock as ps
from helpers.syllables import syllables

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "shell", "text", "json", "proto"}
FENCE = re.compile(r"^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.DOTALL | re.MULTILINE)

SKIPPED = {
    "penstock listen marvin/ --microphone": "needs a microphone",
    "penstock serve bundle/ --stage 2 --replicas 1-8 --listen 127.0.0.1:7002": "needs Ray: tests/cloud runs it",
    "python -m reproduction data fetch cifar10": "downloads 170 MB",
    "python -m reproduction sweep cifar10 --trials 16": "needs CIFAR-10, and takes hours",
    "python -m reproduction run all": "takes hours",
}
"""Lines that cannot run here, and why."""

SHORTENED = {
    "penstock compare -m mine:network -d mine:data --epochs 6 --folder runs/compare --plots plots/": (
        "--epochs 2 --seeds 1 --only two-networks",
        "trains five contestants three times",
    ),
    "penstock wakeword train --word marvin --data speech_commands/ -o marvin/": (
        "--width 8 --windows 4000 --epochs 5 --rounds 0 --hours 0.2 --confidence 0 --max-positive-loss 0.03 "
        "--max-false-alarms 5",
        "takes 20 minutes with the default settings",
    ),
    "penstock wakeword evaluate marvin/ --data speech_commands/": (
        "--hours 0.05 --repeats 1",
        "the long stream alone is four hours of sound",
    ),
}
"""Lines that run with further options, which make them shorter, and why."""

DRY_RUNS = {
    r"make [a-z-]+": ("--dry-run", "CI runs these targets itself"),
    r"pip install .*": ("--dry-run --no-deps --no-build-isolation --quiet", "must not change the environment"),
}
"""Lines that run in the clone and change nothing, and why."""

SLOW = {"deploy.md", "gate.md", "wakeword.md"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line of the page where the text begins."""

    language: str
    code: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found["language"].strip(), found["code"], text.count("\n", 0, found.start("code")) + 1)
        for found in FENCE.finditer(text)
    ]


def lines_of(block: Block) -> list[str]:
    """Return the commands of a shell block: comments removed, continued lines joined."""
    joined = block.code.replace("\\\n", " ")
    lines = (re.sub(r"\s+#.*$|^#.*$", "", line).strip() for line in joined.splitlines())
    return [re.sub(r"\s+", " ", line) for line in lines if line]


def has_code(page: Path) -> bool:
    return any(block.language in {"python", "shell"} for block in blocks_of(page))


def samples(number: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (number,), generator=draw)
    x = torch.randn(number, 2, 64, generator=draw)
    x[y == 1, 0, 20:40] += 3.0
    x[y == 2, 1, 20:40] += 3.0
    return x, y


def convolutions() -> nn.Module:
    def block(channels: int, filters: int) -> nn.Module:
        return nn.Sequential(nn.Conv1d(channels, filters, 5, stride=2), nn.ReLU())

    return nn.Sequential(
        block(2, 16), block(16, 32), block(32, 32), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 3)
    )


def readme(folder: Path) -> dict[str, object]:
    x, y = samples(200, seed=3)
    np.save(folder / "samples.npy", x.numpy())
    return {
        "model": convolutions(),
        "example": x[:2],
        "train": samples(1000, seed=1),
        "val": samples(500, seed=2),
        "held_out": samples(2000, seed=4),
        "test": (x, y),
        "x": x,
        "samples": x.numpy(),
    }


def photos(folder: Path) -> None:
    for number, name in enumerate(("visitor", "nobody")):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = np.random.default_rng(i).integers(0, 100, (100, 128, 3)) + 100 * number
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / name / f"{i}.png")


def gate(folder: Path) -> dict[str, object]:
    photos(folder)
    for name in ("doorbell", "street"):
        (folder / "clips" / name).mkdir(parents=True)
        for i in range(12):
            noise(folder / "clips" / name / f"{i}.wav", seconds=1.0, seed=i)
    return {}


def deploy(folder: Path) -> dict[str, object]:
    (folder / "mine.py").write_text(mine())
    torch.manual_seed(0)
    net = ps.gate(convolutions(), samples(2, seed=0)[0], at=0.4)
    ps.calibrate(net, samples(2000, seed=2), max_positive_loss=0.01)
    ps.save(net, folder / "net.safetensors")
    np.save(folder / "samples.npy", samples(200, seed=3)[0].numpy())
    return {}


def deploy_pictures(folder: Path) -> dict[str, object]:
    photos(folder)
    return deploy(folder)


def islands(folder: Path) -> dict[str, object]:
    deploy(folder)
    net = ps.load(folder / "net.safetensors", convolutions())
    ps.export_bundle(net, samples(8, seed=0)[0], folder / "bundle")
    return {}


def wakeword(folder: Path) -> dict[str, object]:
    words = {"marvin": (500, 2500), "yes": (2500, 500), "no": (300, 300), "up": (5000, 5500)}
    for word, hz in words.items():
        (folder / "speech_commands" / word).mkdir(parents=True)
        for speaker in range(64):
            clip = folder / "speech_commands" / word / f"{speaker:08x}_nohash_0.wav"
            soundfile.write(clip, syllables(*hz, seed=speaker), 16_000)
    noise(folder / "speech_commands" / "_background_noise_" / "hum.wav", seconds=20.0, seed=999)
    for part, speakers in (("validation", range(32, 48)), ("testing", range(48, 64))):
        listed = "\n".join(f"{word}/{speaker:08x}_nohash_0.wav" for word in words for speaker in speakers)
        (folder / "speech_commands" / f"{part}_list.txt").write_text(listed)
    noise(folder / "evening.wav", seconds=6.0, seed=1000)
    return {}


def noise(file: Path, *, seconds: float, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    sound = np.random.default_rng(seed).normal(0, 2000, round(16_000 * seconds))
    soundfile.write(file, sound.astype(np.int16), 16_000)


def paper(folder: Path) -> dict[str, object]:
    (folder / "reproduction").symlink_to(ROOT / "reproduction")
    return {}


SETUP: dict[str, Callable[[Path], dict[str, object]]] = {
    "README.md": readme,
    "gate.md": gate,
    "deploy.md": deploy_pictures,
    "islands.md": islands,
    "wakeword.md": wakeword,
    "paper.md": paper,
}
"""What a page takes for granted: makes files in its folder, and returns the names that its Python blocks use."""


def mine() -> str:
    """Return mine.py as docs/gate.md has it."""
    return next(block.code for block in blocks_of(ROOT / "docs" / "gate.md") if block.code.startswith("# mine.py"))


class Page:
    """Runs the blocks of a page, in order; what is started in the background ends with it."""

    def __init__(self, folder: Path, namespace: dict[str, object]):
        self.folder, self.namespace = folder, {"__name__": "__main__", **namespace}
        self.background: list[subprocess.Popen] = []
        paths = [str(folder), str(ROOT / "src"), str(ROOT)]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def run(self, name: str, block: Block) -> None:
        if block.language == "python":
            self.python(name, block)
        elif block.language == "shell":
            for line in lines_of(block):
                self.shell(line)

    def python(self, name: str, block: Block) -> None:
        if found := re.match(r"# (\w+\.py)\n", block.code):
            (self.folder / found[1]).write_text(block.code)
        padded = "\n" * (block.line - 1) + block.code  # a traceback names the line of the page
        exec(compile(padded, name, "exec"), self.namespace)

    def shell(self, line: str) -> None:
        if line in SKIPPED:
            return
        line, folder = as_run(line)
        if line.endswith("&"):
            self.start(line.removesuffix("&"))
            return
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder or self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    def start(self, line: str) -> None:
        """Start a command in the background and wait until it says that it is ready."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.background.append(process)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert process.poll() is None, f"{line}\n{first}{process.stdout.read()}"

    def close(self) -> None:
        for process in self.background:
            process.send_signal(signal.SIGINT)
        for process in self.background:
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def as_run(line: str) -> tuple[str, Path | None]:
    """Return a line as it is run, and where, if not in the folder of the page."""
    if line in SHORTENED:
        return f"{line} {SHORTENED[line][0]}", None
    for pattern, (options, _) in DRY_RUNS.items():
        if re.fullmatch(pattern, line):
            return f"{line} {options}", ROOT
    return line, None


@pytest.fixture
def page(request, tmp_path, monkeypatch) -> Iterator[tuple[Path, Page]]:
    path: Path = request.param
    with chdir(tmp_path):
        monkeypatch.syspath_prepend(str(tmp_path))
        sys.modules.pop("mine", None)
        prepared = Page(tmp_path, SETUP.get(path.name, lambda folder: {})(tmp_path))
        try:
            yield path, prepared
        finally:
            prepared.close()
            sys.modules.pop("mine", None)


def cases() -> list:
    return [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
        for path in PAGES
        if has_code(path)
    ]


@pytest.mark.parametrize("page", cases(), indirect=True)
@pytest.mark.filterwarnings("ignore")  # what users see as a warning is no failure of the page
@pytest.mark.timeout(900)
def test_the_page_runs(page):
    path, prepared = page
    for block in blocks_of(path):
        prepared.run(path.name, block)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_block_is_left_out(path):
    blocks = blocks_of(path)
    fences = re.findall(r"^\s*```", path.read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks), "a fence that is indented or not closed would be left out"
    for block in blocks:
        assert block.language in LANGUAGES, f"line {block.line}: tag the block with one of {sorted(LANGUAGES)}"


def test_no_command_hides_in_a_text_block():
    for path in PAGES:
        for block in blocks_of(path):
            if block.language == "text":
                assert not re.search(
                    r"^\s*(\$ |penstock [a-z]|python -m|pip install|make )", block.code, re.MULTILINE
                ), path


def test_every_exception_is_needed():
    lines = {
        line for path in PAGES for block in blocks_of(path) if block.language == "shell" for line in lines_of(block)
    }
    assert lines >= SKIPPED.keys() | SHORTENED.keys()
    assert all(any(re.fullmatch(pattern, line) for line in lines) for pattern in DRY_RUNS)
    assert {path.name for path in PAGES if has_code(path)} == SETUP.keys() | {"index.md"}


def test_the_extras_that_pages_install_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    for path in PAGES:
        for names in re.findall(r"(?:penstock|'\.)\[([a-z,]+)\]", path.read_text()):
            assert set(names.split(",")) <= extras, path


def test_the_api_page_has_every_public_name():
    listed = re.findall(r"^::: penstock\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(ps.__all__)


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    if shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("mkdocs is not installed: make docs installs it")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in ("index", "gate/index", "api/index"):
        assert (tmp_path / "site" / f"{name}.html").stat().st_size > 1000
