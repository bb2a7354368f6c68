"""Fill the figures of README.md, and make docs/benchmarks.md, from result files: `make readme`.

No figure in them is written by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from penstock.gating.tables import count, percent

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
LATEST = ROOT / "benchmarks" / "latest.json"
DEMO = ROOT / "docs" / "demo.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "demo.png"
EXCERPT = (
    "training step",
    "predict on",
    "Fashion-MNIST",
    "exported stages",
    "bytes over the link",
    "3 islands",
    "penstock run",
)
"""How the figures begin that the README shows; docs/benchmarks.md has all."""


def main() -> None:
    """Take over the last demo, if there is one, and write the figures into the README."""
    made = ROOT / "demo" / "demo.json"
    if made.exists():
        rows = json.loads(made.read_text())
        DEMO.write_text(json.dumps({key: rows[key] for key in ("plain", "gated", "guarantee")}, indent=1) + "\n")
        shutil.copy(ROOT / "demo" / "gate-scores.png", PICTURE)
    README.write_text(filled(README.read_text()))
    PAGE.write_text(page(json.loads(LATEST.read_text())))


def filled(text: str) -> str:
    """Return the README with its figures as the result files have them."""
    text = _between(text, "demo", _demo(json.loads(DEMO.read_text())))
    return _between(text, "bench", _bench(json.loads(LATEST.read_text())))


def _between(text: str, name: str, content: str) -> str:
    pattern = rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)"
    return re.sub(pattern, lambda found: f"{found[1]}{content}\n{found[2]}", text, flags=re.DOTALL)


def _demo(result: dict[str, Any]) -> str:
    plain, gated = result["plain"], result["gated"]
    shown = (
        ("accuracy", "accuracy", percent),
        ("negatives stopped early", "early_stopping", percent),
        ("values at the cut that are not sent", "activation_sparsity", percent),
        ("positives lost", "positive_lost_rate", percent),
        ("MACs a sample, at nine negatives to one positive", "macs", count),
        ("bytes a sample across the cut, likewise", "payload_bytes", count),
        ("time a sample, likewise", "seconds", lambda seconds: f"{1e6 * seconds:.0f} µs"),
    )
    lines = ["| | plain | gated |", "|---|---:|---:|"]
    lines += [f"| {label} | {text(plain[key])} | {text(gated[key])} |" for label, key, text in shown]
    return "\n".join([*lines, "", f"Its promise: {result['guarantee']}."])


def _bench(latest: dict[str, Any]) -> str:
    hardware = latest["machine"]
    where = f"On {hardware['cores']} cores ({hardware['processor']}), torch {latest['versions']['torch']}."
    rows = [row for row in latest["figures"] if row["figure"].startswith(EXCERPT)]
    return "\n".join([_table(rows), "", where])


def page(latest: dict[str, Any]) -> str:
    """Return docs/benchmarks.md: each part, its figures, and what was measured for them."""
    lines = ["# Benchmarks", "", "<!-- made by `make readme` from benchmarks/latest.json: do not edit by hand -->", ""]
    lines += [
        "Measured by `make bench`; `make bench only=hop` measures one part. Times are ratios within one run wherever"
    ]
    lines += ["that is possible: absolute ones say more of the machine. *Reach* is the aim set beforehand."]
    lines += [
        "Freed memory is kept for what comes next (glibc's `MALLOC_TRIM_THRESHOLD_`, see the Makefile):",
        "otherwise it comes back from the system page by page, more or less of it by chance, and ratios tell",
        "nothing. The same settings make large batches faster on a CPU in any program that uses PyTorch.",
        "",
    ]
    parts = list(dict.fromkeys(row["part"] for row in latest["figures"]))
    for part in parts:
        rows = [row for row in latest["figures"] if row["part"] == part]
        lines += [f"## {part}", "", _table(rows), "", f"Measured on {rows[0]['measured']}."]
        details = {key: value for row in rows for key, value in row["details"].items()}
        if details:
            shown = json.dumps(details, indent=1, ensure_ascii=False)
            lines += [
                "",
                "<details>",
                "<summary>what was measured</summary>",
                "",
                "```json",
                shown,
                "```",
                "",
                "</details>",
            ]
        lines += [""]
    versions = ", ".join(f"{name} {number}" for name, number in latest["versions"].items())
    hardware = latest["machine"]
    lines += [f"On {hardware['cores']} cores ({hardware['processor']}, {hardware['system']}); {versions}.", ""]
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| figure | value | reach | holds |", "|---|---:|---:|---|"]
    for row in rows:
        reach = row["reach"].replace("<=", "≤").replace(">=", "≥")
        lines.append(f"| {row['figure']} | {row['value']:.4g} | {reach} | {'yes' if row['holds'] else '**no**'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
