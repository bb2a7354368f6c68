"""The import contracts of pyproject.toml: the tree keeps them, and each refuses what is planted against it."""

import ast
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
NAMES = {contract["id"]: contract["name"] for contract in CONTRACTS}
NOT_ON_A_DEVICE = next(contract for contract in CONTRACTS if contract["id"] == "device")["forbidden_modules"]
LAYERS = ["cli", "demo", "comparison", "export", "training", "evaluation", "gating", "runtime", "errors"]

# contract -> (the module that must not import, what it must not import)
VIOLATIONS = {
    "device": [
        *(("runtime.pipeline", name) for name in NOT_ON_A_DEVICE),
        ("runtime.islands.client", "torch.nn"),
        ("runtime.cli.run", "rich.table"),
        ("errors", "torch"),
    ],
    "layers": [
        *((lower, f"penstock.{upper}") for upper, lower in pairwise(LAYERS)),
        ("gating.network", "penstock.training.fit"),
        ("gating.network", "penstock.datasets"),
        ("datasets.loading", "penstock.gating.network"),
        ("models", "penstock.datasets"),
        ("wakeword", "penstock.demo"),
        ("wakeword", "penstock.comparison"),
        ("export", "penstock.wakeword"),
    ],
    "commands": [
        *(
            (package, "penstock.cli")
            for package in ("demo", "comparison", "wakeword", "training", "gating", "runtime.cli.run")
        ),
        ("wakeword.training", "penstock.cli.main"),
        ("../../reproduction/experiments", "penstock.cli"),
    ],
    "reproduction": [
        *((package, "reproduction") for package in ("cli", "demo", "wakeword", "export", "evaluation", "runtime")),
        ("datasets.loading", "reproduction.datasets"),
        ("gating.network", "benchmarks"),
        ("training.fit", "tests.helpers"),
    ],
}


@pytest.fixture
def tree(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for part in ("src", "reproduction"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return tmp_path


def lint(tree: Path) -> tuple[int, str]:
    """Run lint-imports as `make check` does; return its code and its words, on one line."""
    code = "from importlinter.cli import lint_imports_command as main; main()"
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "COLUMNS": "400"}
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert not done.stderr, done.stderr
    return done.returncode, re.sub(r"\s+", " ", done.stdout)


def plant(tree: Path, importer: str, statement: str, *, deferred: bool) -> None:
    """Add an import to a module or package of the copy: after its first imports, or in a function."""
    path = tree / "src" / "penstock" / (importer if "/" in importer else importer.replace(".", "/"))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    line = f"def _planted():\n    {statement}\n" if deferred else f"{statement}\n"
    path.write_text(f"{path.read_text()}\n\n{line}")


def plant_at_the_top(tree, importer, imported, number):
    plant(tree, importer, f"import {imported}", deferred=False)


def plant_in_a_function(tree, importer, imported, number):
    plant(tree, importer, f"from {imported} import anything", deferred=True)


def plant_through_a_third_module(tree, importer, imported, number):
    third = tree / "src" / "penstock" / f"third{number}.py"
    third.write_text(f"def _deferred():\n    import {imported}\n")
    plant(tree, importer, f"import penstock.third{number}", deferred=True)


def plant_for_the_type_checker(tree, importer, imported, number):
    plant(tree, importer, f"import typing\nif typing.TYPE_CHECKING:\n    import {imported}", deferred=False)


def test_the_tree_keeps_its_contracts(tree):
    code, said = lint(tree)
    assert code == 0, said
    assert f"{len(CONTRACTS)} kept, 0 broken" in said


@pytest.mark.parametrize("contract", NAMES)
@pytest.mark.parametrize(
    "way", [plant_at_the_top, plant_in_a_function, plant_through_a_third_module, plant_for_the_type_checker]
)
def test_each_contract_refuses_a_planted_import(tree, contract, way):
    for number, (importer, imported) in enumerate(VIOLATIONS[contract]):
        way(tree, importer, imported, number)
    code, said = lint(tree)
    assert code == 1
    assert f"{NAMES[contract]} BROKEN" in said
    for _, imported in VIOLATIONS[contract]:
        package = ".".join(imported.split(".")[: 2 if imported.startswith("penstock") else 1])
        assert re.search(rf"is not allowed to import {re.escape(package)}\b", said), f"{imported} got through"


def test_every_contract_is_tried():
    assert VIOLATIONS.keys() == NAMES.keys()


@pytest.mark.parametrize("statement", ["import penstock", "from penstock import gate"])
def test_the_lazy_public_names_are_no_way_around(tree, statement):
    plant(tree, "runtime.pipeline", statement, deferred=True)
    code, said = lint(tree)
    assert code == 1
    assert "penstock.runtime is not allowed to import penstock.gating" in said


def test_a_new_package_needs_a_layer(tree):
    (tree / "src" / "penstock" / "planted").mkdir()
    (tree / "src" / "penstock" / "planted" / "__init__.py").touch()
    code, said = lint(tree)
    assert code == 1
    assert f"{NAMES['layers']} BROKEN" in said


def imports_by_name(source: str) -> list[str]:
    """List the modules imported through a function: `import_module("x")`, `__import__("x")`, `require("x")`."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        argument.value
        for call in calls
        if getattr(call.func, "attr", getattr(call.func, "id", "")) in {"import_module", "__import__", "require"}
        for argument in (*call.args[:1], *(keyword.value for keyword in call.keywords))
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def test_the_runtime_imports_nothing_forbidden_by_name():
    assert imports_by_name("import importlib\nimportlib.import_module('torch.nn')\nrequire('rich')") == [
        "torch.nn",
        "rich",
    ]
    for path in (ROOT / "src" / "penstock" / "runtime").rglob("*.py"):
        for name in imports_by_name(path.read_text()):
            assert not any(name == module or name.startswith(f"{module}.") for module in NOT_ON_A_DEVICE), path
