"""The sections of the results page: one per experiment, with a description, the paper's finding and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from matplotlib.figure import Figure

from reproduction.experiments.methods import GC, Baseline, BranchyNet, Dropout, G, GateInput, Method, TwoStage
from reproduction.experiments.paper_experiments import EXPERIMENTS, GRIDS, counts, gate_every_block, positions, table1
from reproduction.experiments.tasks import TASKS
from reproduction.page import analysis_figures, dataset_figures, findings
from reproduction.results.finished_runs import BySeed, FinishedRuns
from reproduction.results.paper_table1 import (
    ACCURACY,
    BRANCHYNET,
    MEASURED_ON_OTHER_DATA,
    PAPER_TABLE1,
    ROWS,
    TRADE_OFF,
)

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Picture:
    """A figure and the finding stated with it.

    Attributes:
        task: the task shown, if it is neither all tasks nor one of the experiment's own.
    """

    figure: Figure
    finding: str = ""
    task: str = ""


@dataclass(frozen=True)
class Section:
    """The section of an experiment.

    Attributes:
        experiment: its name in `EXPERIMENTS`.
        heading: the section's title.
        description: what the figure shows, and what the paper found.
        draw: yields the figures, given at least one finished run: one for all tasks, or one per task.
    """

    experiment: str
    heading: str
    description: str
    draw: Callable[[FinishedRuns], Iterator[Picture]]

    def file(self, task: str = "") -> str:
        """Return the file name of the figure of a task."""
        return f"{'-'.join([self.experiment.removeprefix('figure-'), *([task] if task else [])])}.png"


def _overall(finished: FinishedRuns) -> Iterator[Picture]:
    groups, published = {}, {}
    for task in finished.tasks(EXPERIMENTS["table1"]):
        rows = dict(zip(ROWS, table1(finished.weights(task)), strict=True))
        results = {name: finished.by_seed(task, rows[name]) for name in dataset_figures.STYLES}
        if any(results.values()):
            title = TASKS[task].title
            groups[f"{title}\n(paper: {MEASURED_ON_OTHER_DATA[task]})" if task in MEASURED_ON_OTHER_DATA else title] = (
                results
            )
            published[list(groups)[-1]] = PAPER_TABLE1[task]
    yield Picture(dataset_figures.overall_figure(groups, published))


def _roc(finished: FinishedRuns) -> Iterator[Picture]:
    groups = {}
    for task in finished.tasks(EXPERIMENTS["figure-roc"]):
        ours = GC(*finished.weights(task).trade_off)
        groups[TASKS[task].title] = {
            BRANCHYNET: finished.by_seed(task, BranchyNet()),
            TRADE_OFF: finished.by_seed(task, ours),
        }
    yield Picture(
        dataset_figures.roc_figure({title: results for title, results in groups.items() if any(results.values())})
    )


def _position(finished: FinishedRuns) -> Iterator[Picture]:
    tasks = finished.tasks(EXPERIMENTS["figure-position"])
    lines = {TASKS[task].title: _singles(finished, task) for task in tasks}
    yield Picture(dataset_figures.position_figure(lines), findings.position_finding(lines))


def _count(finished: FinishedRuns) -> Iterator[Picture]:
    lines = {
        TASKS[task].title: {
            len(method.blocks): finished.by_seed(task, method)
            for method in _only(GC, counts(finished.weights(task), GRIDS[finished.profile]))
        }
        for task in finished.tasks(EXPERIMENTS["figure-count"])
    }
    yield Picture(dataset_figures.count_figure(lines), findings.count_finding(lines))


def _modes(finished: FinishedRuns) -> Iterator[Picture]:
    panels = {
        TASKS[task].title: (finished.by_seed(task, gate_every_block(finished.weights(task))), _singles(finished, task))
        for task in finished.tasks(EXPERIMENTS["figure-modes"])
    }
    available = {title: (several, one) for title, (several, one) in panels.items() if several or any(one.values())}
    yield Picture(dataset_figures.modes_figure(available))


def _alpha(finished: FinishedRuns) -> Iterator[Picture]:
    for task, label, methods in _analysed(finished, "figure-alpha"):
        baseline = finished.by_seed(task, Baseline())
        alphas = {method.alpha: finished.by_seed(task, method) for method in _only(G, methods)}
        yield Picture(analysis_figures.alpha_figure(baseline, alphas), findings.alpha_finding(baseline, alphas), label)


def _beta(finished: FinishedRuns) -> Iterator[Picture]:
    for task, label, methods in _analysed(finished, "figure-beta"):
        baseline = finished.by_seed(task, Baseline())
        betas = {method.beta: finished.by_seed(task, method) for method in _only(GC, methods)}
        yield Picture(analysis_figures.beta_figure(baseline, betas), findings.beta_finding(baseline, betas), label)


def _phi(finished: FinishedRuns) -> Iterator[Picture]:
    for task, label, (method,) in _analysed(finished, "figure-weights"):
        results = finished.by_seed(task, method)
        yield Picture(analysis_figures.phi_figure(results), findings.phi_finding(results), label)


def _gate_input(finished: FinishedRuns) -> Iterator[Picture]:
    for task, label, methods in _analysed(finished, "figure-gate-input"):
        blocks = {method.block: finished.by_seed(task, method) for method in _only(GateInput, methods)}
        yield Picture(analysis_figures.gate_input_figure(blocks), findings.gate_input_finding(blocks), label)


def _two_stages(finished: FinishedRuns) -> Iterator[Picture]:
    for task, label, methods in _analysed(finished, "figure-two-stages"):
        (joint,) = (finished.by_seed(task, method) for method in _only(GC, methods))
        plain, compressed = (
            {
                method.switch_every: finished.by_seed(task, method)
                for method in _only(TwoStage, methods)
                if (method.beta is not None) == with_mask
            }
            for with_mask in (False, True)
        )
        finding = findings.two_stages_finding(joint, [*plain.values(), *compressed.values()])
        yield Picture(analysis_figures.two_stages_figure(joint, plain, compressed), finding, label)


def _dropout(finished: FinishedRuns) -> Iterator[Picture]:
    for task, label, methods in _analysed(finished, "figure-dropout"):
        rates = {method.rate: finished.by_seed(task, method) for method in _only(Dropout, methods)}
        weights = finished.weights(task)
        ours = {
            TRADE_OFF: finished.by_seed(task, GC(*weights.trade_off)),
            ACCURACY: finished.by_seed(task, GC(*weights.accuracy)),
        }
        baseline = finished.by_seed(task, Baseline())
        finding = findings.dropout_finding(baseline, rates, ours)
        yield Picture(analysis_figures.dropout_figure(baseline, rates, ours), finding, label)


def _analysed(finished: FinishedRuns, experiment: str) -> Iterator[tuple[str, str, list[Method]]]:
    """Yield each task of an analysis, the label of its figure (empty for the experiment's own task) and its methods."""
    known = EXPERIMENTS[experiment]
    for task in finished.tasks(known):
        methods = known.methods(finished.weights(task), finished.profile, task)
        if any(finished.by_seed(task, method) for method in methods):
            yield task, "" if task in known.tasks else task, methods


def _singles(finished: FinishedRuns, task: str) -> Mapping[int, BySeed]:
    """Return the results of networks with one layer, by the block it follows."""
    methods = positions(finished.weights(task))
    return {block: finished.by_seed(task, method) for block, method in enumerate(methods, start=1)}


def _only(kind: type[Kind], methods: list[Method]) -> list[Kind]:
    return [method for method in methods if isinstance(method, kind)]


SECTIONS = (
    Section(
        "table1",
        "Accuracy against early stopping",
        "Up and to the right is better; bars are standard deviations over seeds, and the paper's points are grey. In "
        "the paper both GC networks lie above BranchyNet and the Baseline on every data set, and to the right of "
        "BranchyNet.",
        _overall,
    ),
    Section(
        "figure-roc",
        "ROC curves of the gates",
        "The threshold of each gate moves over its whole range: thick lines are means over seeds, thin lines single "
        "seeds. The axis of negatives is logarithmic, because a gate that stops most negatives operates at the left. "
        "The curve of a BranchyNet exit bends where the exit predicts a positive class: its entropy does not separate "
        "those samples, which costs AUC but no early stopping at the losses that gates operate at. In the paper the "
        "curve of the GC gate lies above that of BranchyNet's exit on all data sets.",
        _roc,
    ),
    Section(
        "figure-position",
        "The position of one layer",
        "A single layer is placed after each of the eight blocks in turn. In the paper early stopping rises with "
        "depth, from 10–40 % at a depth of 10 % to 70–90 % at 40 %, and sparsity falls, from 90–98 % at 40 % to "
        "60–78 % at 80 %.",
        _position,
    ),
    Section(
        "figure-count",
        "The number of layers",
        "Layers are spaced evenly over the network and share α and β. In the paper accuracy hardly changes below five "
        "layers and falls by less than two points beyond.",
        _count,
    ),
    Section(
        "figure-modes",
        "Several gates",
        "Eight gates in one network, each used alone (independent) or together with all gates before it (incremental), "
        "compared with networks trained with a single gate at the same position. All are compared at 1 % of positives "
        "lost; for incremental gates that is the loss of the whole cascade. In the paper incremental gating stops the "
        "most.",
        _modes,
    ),
    Section(
        "figure-alpha",
        "The effect of α",
        "A gate without compression is trained with increasing weight. In the paper the network is more accurate than "
        "the Baseline for every α from 0.05 to 0.8, and the gate improves as α grows.",
        _alpha,
    ),
    Section(
        "figure-beta",
        "The effect of β",
        "The compression is trained with increasing weight at a fixed α. The paper reports a density of 0.579 without "
        "regularisation and of 2.7 % at β = 0.72, and for smaller β an accuracy 1 to 4.5 % above the Baseline's.",
        _beta,
    ),
    Section(
        "figure-weights",
        "The weights of the mask",
        "Each dimension of the mask has a weight φ, clipped to [0, 1]; dimensions above ½ are kept. The paper shows "
        "the same histogram for CIFAR-10; its regularisation pushes most weights to 0.",
        _phi,
    ),
    Section(
        "figure-gate-input",
        "The gate's input",
        "The mask stays after block 4 while the gate reads the output of another block. In the paper both the gate and "
        "the network are best when the gate reads the masked features, and degrade on either side.",
        _gate_input,
    ),
    Section(
        "figure-two-stages",
        "Training in two stages",
        "Gate and network are trained alternately for N epochs each, with no gradient between them. In the paper joint "
        "training is better than any N, and alternating training is slightly better without compression.",
        _two_stages,
    ),
    Section(
        "figure-dropout",
        "Is it the layer, or its noise?",
        "Not in the paper. In the lite profile masks are sampled during training, and noise alone keeps a network from "
        "memorising its training data. As a control, the plain network was trained with dropout in place of the layer. "
        "The gain of a GC network over that control is due to the layer; the rest is what any noise would give.",
        _dropout,
    ),
)
"""In the order of the page, one per experiment."""
