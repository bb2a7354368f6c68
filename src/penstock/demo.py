"""The demo: a watch that is to report three shoulder exercises, and to sleep through the other four.

The plain network is trained on six people; gated, it is trained on for as many epochs, with itself as it was before as
its teacher. Thresholds are chosen on windows of four other people, and everything is measured on other windows of those
four: the guarantee holds for the people that it was calibrated on. No two of these windows overlap.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console, RenderableType
from torch import Tensor, nn

from penstock.datasets.splits import Labelled, draw_stream
from penstock.datasets.wrist import STEP, WINDOW, Windows, wrist
from penstock.evaluation.calibrate import calibrate
from penstock.evaluation.evaluate import Evaluation, evaluate
from penstock.evaluation.timing import best_seconds
from penstock.gating.checkpoint import save
from penstock.gating.layers import LayerConfig
from penstock.gating.network import GatedNetwork
from penstock.gating.surgery import gate, ungate
from penstock.gating.tables import count, network_table, percent, table_of
from penstock.models.resnet import resnet8_1d
from penstock.runtime.files import write_atomically
from penstock.training.config import FitConfig
from penstock.training.fit import fit

DEPTH = 0.4
EPOCHS = 10
BATCH = 64
LAYER = LayerConfig(keep=160)  # of 1,600 values
MAX_POSITIVE_LOSS = 0.02
NEGATIVES_PER_POSITIVE = 9
STREAM = 1000  # windows, to measure the time on


@dataclass(frozen=True)
class Row:
    """One network in the comparison: shares in [0, 1]; MACs, bytes and seconds a sample of a 1:9 stream."""

    accuracy: float
    early_stopping: float
    activation_sparsity: float
    positive_lost_rate: float
    macs: float
    payload_bytes: float
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo."""

    plain: Row
    gated: Row
    guarantee: str
    evaluation: Evaluation
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def tables(self) -> list[RenderableType]:
        """Return the comparison, the guarantee, where the files are, and what to do with them."""
        table = table_of("", ">plain", ">gated", ">gated / plain", title="The same network, plain and gated")
        at = f"a sample at 1:{NEGATIVES_PER_POSITIVE}"
        shown: list[tuple[str, str, Callable[[float], str], bool]] = [
            ("accuracy", "accuracy", percent, False),
            ("early stopping: negatives stopped", "early_stopping", percent, False),
            ("activation sparsity at the cut", "activation_sparsity", percent, False),
            ("positives lost", "positive_lost_rate", percent, False),
            (f"MACs {at}", "macs", count, True),
            (f"bytes across the cut {at}", "payload_bytes", count, True),
            (f"time {at}", "seconds", lambda seconds: f"{1e6 * seconds:.0f} µs", True),
        ]
        for label, name, text, compared in shown:
            plain, gated = getattr(self.plain, name), getattr(self.gated, name)
            table.add_row(label, text(plain), text(gated), percent(gated / plain) if compared else "")
        folder = Path(self.files[0]).parent
        commands = [
            f"penstock export {folder}/network.safetensors -o {folder}/bundle \\",
            "  -m penstock.demo:network -d penstock.demo:data",
            f"penstock run {folder}/bundle {folder}/windows.npy",
        ]
        return [
            table,
            f"Guarantee: {self.guarantee}.",
            f"Written: {', '.join(self.files)}",
            "\n".join(["", "Deploy it:", *commands]),
        ]


def network() -> nn.Module:
    """Return the demo's network, untrained."""
    return resnet8_1d(6, classes=4)


def data() -> dict[str, Any]:
    """Return the demo's data: windows of six people to train on, and of four others to calibrate and to test on."""
    windows = wrist()
    held_out, test, _ = _unseen_people(windows.validation, windows.test)
    return {
        "train": windows.train.samples,
        "validation": held_out,
        "test": test,
        "class_names": windows.class_names,
    }


def run(folder: Path, *, seed: int = 0, progress: bool = True) -> DemoResult:
    """Run the demo; write plots, figures and the gated network into ``folder``."""
    console = Console(quiet=not progress)
    windows = wrist()
    held_out, test, live = _unseen_people(windows.validation, windows.test)
    train, example = windows.train.samples, windows.train.x[:2]

    console.print(f"[bold]1[/] plain network: {EPOCHS} epochs on {len(windows.train.x):,} windows of six people")
    torch.manual_seed(seed)
    model = network()
    plain = gate(model, example, at=0)
    config = FitConfig(epochs=EPOCHS, batch_size=BATCH, seed=seed, progress=progress)
    fit(plain, train, config=config)

    console.print(f"[bold]2[/] gated at {DEPTH:.0%} of its depth, and trained on with the plain one as its teacher")
    teacher = ungate(plain)
    assert isinstance(teacher, nn.Module)
    gated = gate(teacher, example, at=DEPTH, layer=LAYER)
    fit(gated, train, config=config, teacher=teacher)

    console.print(
        f"[bold]3[/] thresholds from {len(held_out.x)} windows of four other people; measured on {len(test.x)} more"
    )
    calibrate(gated, held_out, max_positive_loss=MAX_POSITIVE_LOSS)
    console.print(network_table(gated))
    result = _compare(plain, gated, test, live, windows.class_names, seed)
    files = [*result.evaluation.plot(folder, gated)]
    files += [folder / name for name in ("windows.npy", "network.safetensors", "demo.json")]
    np.save(files[-3], test.x[:20].numpy())
    save(gated, files[-2])
    result = replace(result, files=tuple(str(file) for file in files))
    write_atomically(files[-1], json.dumps(result.to_json(), indent=1).encode())
    return result


def _unseen_people(*parts: Windows) -> tuple[Labelled, Labelled, Labelled]:
    """Return windows to calibrate on, to test on (none of them overlap), and all but the first, for a live stream."""
    apart = WINDOW // STEP  # the window this far on begins where this one ends
    turn = torch.cat([_number_in_recording(part.recording) % (2 * apart) for part in parts])
    x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
    return tuple(Labelled(x[pick], y[pick]) for pick in (turn == 0, turn == apart, turn != 0))  # type: ignore[return-value]


def _number_in_recording(recording: Tensor) -> Tensor:
    counts = torch.unique_consecutive(recording, return_counts=True)[1]
    return torch.cat([torch.arange(n) for n in counts.tolist()])


def _compare(
    plain: GatedNetwork, gated: GatedNetwork, test: Labelled, live: Labelled, names: tuple[str, ...], seed: int
) -> DemoResult:
    measured, accuracy = evaluate(gated, test, class_names=names), evaluate(plain, test).accuracy
    cost = next(cost for cost in measured.costs if cost.negatives_per_positive == NEGATIVES_PER_POSITIVE)
    picked = draw_stream(live.y, 1 / (1 + NEGATIVES_PER_POSITIVE), STREAM, seed)
    batches, run_plain = live.x[picked].split(256), plain.eval()
    with torch.no_grad():
        seconds = best_seconds(
            {"plain": lambda: [*map(run_plain, batches)], "gated": lambda: [*map(gated.predict, batches)]}, rounds=7
        )
    rates = measured.accuracy, measured.early_stopping, measured.activation_sparsity, measured.positive_lost_rate
    return DemoResult(
        plain=Row(accuracy, 0.0, 0.0, 0.0, cost.plain_macs, cost.plain_payload_bytes, seconds["plain"] / STREAM),
        gated=Row(*rates, cost.macs, cost.payload_bytes, seconds["gated"] / STREAM),
        guarantee=str(gated.guarantee),
        evaluation=measured,
        files=(),
    )
