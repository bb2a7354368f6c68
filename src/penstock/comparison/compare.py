"""Compare a gated network with what one would do instead: train all of it alike, measure all of it alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from torch import Tensor, nn

from penstock.comparison.config import CompareConfig
from penstock.comparison.points import Point
from penstock.comparison.run import Finished, LeftOut, Model, Run, built, claim
from penstock.comparison.verdict import verdict
from penstock.datasets.loading import Data, batches, labels
from penstock.errors import CutError, LabelError
from penstock.evaluation.outputs import check_both_kinds
from penstock.gating.layers import LayerConfig
from penstock.gating.objective import check_labels
from penstock.gating.surgery import gate
from penstock.runtime.files import write_atomically


@dataclass(frozen=True)
class Comparison:
    """What each contestant reaches. Prints as a table; `save` writes JSON; `plot` draws it.

    Attributes:
        points: of each contestant, seed and permitted loss.
        lost: the shares of positives that may be lost.
        samples, positives: of the test data.
        fewest_positives: of the validation and the test data, those of the one that has fewer.
        left_out: contestants that cannot be built for this network, and why.
        untimed: contestants whose time could not be measured, and why.
    """

    points: tuple[Point, ...]
    lost: tuple[float, ...]
    samples: int
    positives: int
    fewest_positives: int
    left_out: dict[str, str]
    untimed: dict[str, str]

    @property
    def contestants(self) -> tuple[str, ...]:
        """The contestants that were measured, in order."""
        return tuple(dict.fromkeys(point.contestant for point in self.points))

    @property
    def seeds(self) -> int:
        """How many times each was trained."""
        return len({point.seed for point in self.points})

    @property
    def verdict(self) -> str:
        """Which one wins on this data, in a sentence."""
        return verdict(self)

    def of(self, contestant: str, allowed: float) -> list[Point]:
        """Return the points of a contestant at a permitted loss, one for each seed."""
        return [point for point in self.points if (point.contestant, point.allowed) == (contestant, allowed)]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self) | {"verdict": self.verdict}

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_atomically(Path(path), (json.dumps(self.to_json(), indent=1) + "\n").encode())

    def plot(self, folder: str | Path) -> Path:
        """Draw MACs and early stopping against positives lost; return the file written."""
        from penstock.comparison.plots import plot_comparison

        return plot_comparison(self, Path(folder))

    def __str__(self) -> str:
        from penstock.comparison.tables import comparison_tables
        from penstock.gating.tables import render

        return render(*comparison_tables(self))


def compare(
    model: Model, train: Data, validation: Data, test: Data, *, config: CompareConfig = CompareConfig()
) -> Comparison:
    """Train a network alone, gated and in the usual other ways; measure all at equal shares of positives lost.

    The contestants: "yours", the network alone; "gated", with a gate and a mask; "gate only", which leaves the network
    as it is; "early exit" (BranchyNet); "two networks", a small one in front that wakes yours.

    Args:
        model: a function without arguments that returns the network, called once for each seed; or a network, which is
            copied and from which each seed starts.
        train: a DataLoader, a Dataset or a pair of tensors (x, y).
        validation: the same; thresholds, and the size of the small network, are chosen on it.
        test: the same; everything is measured on it.
        config: where the gate is, epochs, seeds, permitted losses, the folder to resume from.
    """
    parts = {"train": train, "validation": validation, "test": test}
    example, _ = next(batches(train, batch_size=16))
    classes = _check_network(built(model, 0), example, config)
    sizes = {part: _check_part(part, data, classes, config.background) for part, data in parts.items()}
    with _folder_of(config) as folder:
        claim(folder, model, parts, config)
        runs = [Run(folder / f"seed-{seed}", model, parts, config, seed) for seed in range(config.seeds)]
        records = [(run, name, run.record(name)) for run in runs for name in config.contestants]
        seconds, untimed = runs[0].seconds({name: record for run, name, record in records if run is runs[0]})
    points = tuple(
        point
        for run, name, record in records
        if isinstance(record, Finished)
        for point in record.points(name, run.seed, config.lost, seconds.get(name))
    )
    return Comparison(
        points=points,
        lost=config.lost,
        samples=sizes["test"].samples,
        positives=sizes["test"].positives,
        fewest_positives=min(sizes["validation"].positives, sizes["test"].positives),
        left_out={name: record.reason for _, name, record in records if isinstance(record, LeftOut)},
        untimed=untimed,
    )


def _check_network(model: nn.Module, example: Tensor, config: CompareConfig) -> int:
    """Refuse what cannot be gated as asked, before anything is trained; return the number of classes."""
    layer = LayerConfig(keep=config.keep)
    net = gate(model, example, config.at, layer=layer, background=config.background)
    if len(net.layers) != 1:
        raise CutError(f"expected one place for one gate, such as at=0.4, got at={config.at!r}: {len(net.layers)}.")
    return net.spec.classes


class _Size(NamedTuple):
    samples: int
    positives: int


def _check_part(part: str, data: Data, classes: int, background: int) -> _Size:
    """Refuse data without both kinds; return how much there is."""
    found = labels(data)
    try:
        check_labels(found, classes)
        check_both_kinds(found != background, "compare")
    except LabelError as error:
        raise LabelError(f"{part}: {error}") from error
    return _Size(len(found), int((found != background).sum()))


@contextmanager
def _folder_of(config: CompareConfig) -> Iterator[Path]:
    """Yield the folder to work in: the one that is kept, or one that is removed at the end."""
    if config.folder is not None:
        yield Path(config.folder)
        return
    with TemporaryDirectory(prefix="penstock-compare-") as folder:
        yield Path(folder)
