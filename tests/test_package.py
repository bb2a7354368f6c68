"""The package as a whole: light to import, complete, and free of what must not be in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps

ROOT = Path(__file__).parents[1]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_loads_no_torch():
    assert run("import penstock, sys; print('torch' in sys.modules, 'lightning' in sys.modules)") == "False False\n"


def test_without_torch_the_error_names_the_extra():
    code = """
import sys
sys.modules["torch"] = None
import penstock
try:
    penstock.gate
except penstock.errors.MissingExtraError as error:
    print(error)
"""
    assert "torch is not installed: pip install 'penstock[train]'" in run(code)


def test_every_public_name_loads():
    assert ps.__all__ == sorted(ps.__all__)
    assert set(ps.__all__) - {"PenstockError", "errors"} == set(ps._HOMES)
    for name in ps.__all__:
        assert getattr(ps, name).__name__.endswith(name)
    with pytest.raises(AttributeError, match="has no attribute 'gait'"):
        ps.gait  # noqa: B018


def test_the_documents_use_public_names_alone():
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for name in re.findall(r"\bps\.(\w+)", document.read_text()):
            assert name in ps.__all__, f"{document.name}: ps.{name}"


def test_no_figure_in_the_readme_is_written_by_hand():
    sys.path.insert(0, str(ROOT))
    from benchmarks.readme import filled, page

    text = (ROOT / "README.md").read_text()
    assert filled(text) == text, "the result files say something else: make readme"
    written = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page(json.loads((ROOT / "benchmarks" / "latest.json").read_text())) == written, "make readme"


def test_no_figure_of_listening_is_written_by_hand():
    sys.path.insert(0, str(ROOT))
    from benchmarks.listening import HEARD, RESULTS
    from benchmarks.listening_page import PAGE, page

    rows, heard = json.loads(RESULTS.read_text()), json.loads(HEARD.read_text())
    assert page(rows, heard) == PAGE.read_text(), "make listening-page"
    assert all({"figure", "value", "reach", "holds"} <= row.keys() for row in rows)


def test_every_link_of_the_documents_leads_somewhere():
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert target.startswith("http") or (document.parent / target).exists(), f"{document.name}: {target}"
        for target in re.findall(r"docs/[\w./-]+\.md", document.read_text()):
            assert (ROOT / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    subprocess.run([sys.executable, str(example)], check=True, cwd=tmp_path, timeout=200)
