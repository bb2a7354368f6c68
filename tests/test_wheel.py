"""The wheel as users get it: what is in it, and that a device can run a bundle with the extra `run` alone."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ps

ROOT = Path(__file__).parents[1]
LINES = {
    "the rebuilt tree": 18_000,
    "pictures": 400,
    "a second tracer": 500,
    "heads, keep, bits, coefficients": 900,
    "compare": 1_450,
}
"""What each capability may take: the wheel grows with those, and with nothing else."""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """Build wheel and sdist from a copy of the tree, so that nothing left over from an earlier build gets in."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", "constraints.txt"):
        (tree / name).write_bytes((ROOT / name).read_bytes())
    for path in (ROOT / "src").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and not path.parent.name.endswith(".egg-info"):
            target = tree / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    return out


@pytest.fixture(scope="module")
def wheel(distributions):
    return next(distributions.glob("*.whl"))


def test_the_index_would_take_both(distributions):
    files = sorted(distributions.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True, capture_output=True)


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"penstock", "penstock-0.1.0.dist-info"}
    assert "penstock/py.typed" in names
    sources = {
        f"penstock/{path.relative_to(ROOT / 'src' / 'penstock').as_posix()}"
        for path in (ROOT / "src" / "penstock").rglob("*")
        if path.is_file() and path.suffix not in {".pyc"}
    }
    assert sources <= set(names)


def test_the_wheel_stays_small(wheel):
    with ZipFile(wheel) as archive:
        lines = sum(archive.read(name).count(b"\n") for name in archive.namelist() if name.endswith(".py"))
    assert lines <= sum(LINES.values())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_device_runs_a_bundle_with_the_extra_run_alone(wheel, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    x = torch.randn(64, 8)
    net = ps.gate(model, x[:2], at=0.5)
    ps.export_bundle(net, x, tmp_path / "bundle")
    np.save(tmp_path / "samples.npy", x.numpy())

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command):
        done = subprocess.run([python, *command], cwd=tmp_path, env=bare, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", f"{wheel}[run]")
    said = run(python.with_name("penstock"), "run", "bundle", "samples.npy", "--json")
    results = json.loads(said)
    with torch.no_grad():
        labels = net.eval().predict(x).label.tolist()
    assert [result["label"] for result in results] == [str(label) for label in labels]
    absent = "torch", "lightning", "scipy", "rich", "typer", "grpc", "matplotlib"
    code = f"from importlib.util import find_spec; print([n for n in {absent} if find_spec(n)])"
    assert run("-c", code).strip() == "[]"
    # onnxruntime's wheel depends on protobuf; what runs a bundle must not import it
    code = (
        "import sys, penstock as ps\n"
        "ps.Pipeline(ps.Bundle.read('bundle'))\n"
        "print([n for n in sys.modules if n.startswith('google')])"
    )
    assert run("-c", code).strip() == "[]"
