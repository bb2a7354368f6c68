"""Fill the figures of README.md from result files: `make readme`. No figure in it is written by hand."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from penstock.report.tables import count, percent

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
LATEST = ROOT / "benchmarks" / "latest.json"
DEMO = ROOT / "docs" / "demo.json"
PICTURE = ROOT / "docs" / "demo.png"


def main() -> None:
    """Take over the last demo, if there is one, and write the figures into the README."""
    made = ROOT / "demo" / "demo.json"
    if made.exists():
        rows = json.loads(made.read_text())
        DEMO.write_text(json.dumps({key: rows[key] for key in ("plain", "gated", "certificate")}, indent=1) + "\n")
        shutil.copy(ROOT / "demo" / "gate-scores.png", PICTURE)
    README.write_text(filled(README.read_text()))


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
    return "\n".join([*lines, "", f"Its promise: {result['certificate']}."])


def _bench(latest: dict[str, Any]) -> str:
    lines = ["| figure | value | reach | holds |", "|---|---:|---:|---|"]
    for row in latest["figures"]:
        reach = row["reach"].replace("<=", "≤").replace(">=", "≥")
        lines.append(f"| {row['figure']} | {row['value']:.4g} | {reach} | {'yes' if row['holds'] else '**no**'} |")
    machine = latest["machine"]
    return "\n".join(
        [*lines, "", f"On {machine['cores']} cores ({machine['processor']}), torch {latest['versions']['torch']}."]
    )


if __name__ == "__main__":
    main()
