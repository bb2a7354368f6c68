"""docs/architecture.md lists the packages that are there, and names files that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGE = ROOT / "src" / "penstock"


def listed() -> set[str]:
    """Return the paths of the tree that the page draws, from its indentation."""
    tree = PAGE.split("```text\nsrc/penstock/\n")[1].split("```")[0]
    paths, parents = set(), {0: ""}
    for line in tree.splitlines():
        found = re.match(r"( *)([\w.]+/?)(?:\s|$)", line)
        if found is None or not found[1]:  # the line between the halves, and what is outside the package
            continue
        depth = len(found[1]) // 2
        path = f"{parents[depth - 1]}{found[2]}"
        parents[depth] = path
        paths.add(path.rstrip("/"))
    return paths


def test_it_lists_the_packages_of_the_tree():
    there = {
        path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE
    }
    inner = {"datasets/fetch", "gating/layers", "gating/surgery"}  # named beside their packages
    assert inner <= there
    packages = {path for path in listed() if not path.endswith(".py")}
    assert packages == there - inner
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert {path for path in listed() if path.endswith(".py")} == modules


def test_every_file_it_names_is_there():
    for name in re.findall(r"`((?:[\w]+/)*\w+\.(?:py|toml)|(?:\w+/)+)`", PAGE):
        assert next(ROOT.glob(name), None) or next(PACKAGE.glob(f"**/{name}"), None), name
