"""The sections of the results page: of each experiment, what one looks at, what the paper saw, and the picture."""

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
    """A figure, and what ours say to it in a sentence.

    Attributes:
        task: the task that it is of, where it is not of all or of the experiment's only one.
    """

    figure: Figure
    finding: str = ""
    task: str = ""


@dataclass(frozen=True)
class Section:
    """What the page says of an experiment.

    Attributes:
        experiment: its name in `EXPERIMENTS`.
        heading: of the section.
        description: what one looks at, and what the paper saw.
        draw: makes the figures, once at least one run is finished: one of all data sets, or one of each.
    """

    experiment: str
    heading: str
    description: str
    draw: Callable[[FinishedRuns], Iterator[Picture]]

    def file(self, task: str = "") -> str:
        """Return the name of a picture's file, given the task that it is of."""
        return f"{'-'.join([self.experiment.removeprefix('figure-'), *([task] if task else [])])}.png"


def _overall(finished: FinishedRuns) -> Iterator[Picture]:
    groups, published = {}, {}
    for task in finished.tasks(EXPERIMENTS["table1"]):
        rows = dict(zip(ROWS, table1(finished.weights(task)), strict=True))
        results = {name: finished.by_seed(task, rows[name]) for name in dataset_figures.STYLES}
        if any(results.values()):
            title = TASKS[task].title
            groups[
                f"{title}\n(the paper's: {MEASURED_ON_OTHER_DATA[task]})" if task in MEASURED_ON_OTHER_DATA else title
            ] = results
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
    there = {title: (several, one) for title, (several, one) in panels.items() if several or any(one.values())}
    yield Picture(dataset_figures.modes_figure(there))


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
    """Yield each data set that was analysed, what its picture is to be named after, and what is compared on it."""
    known = EXPERIMENTS[experiment]
    for task in finished.tasks(known):
        methods = known.methods(finished.weights(task), finished.profile, task)
        if any(finished.by_seed(task, method) for method in methods):
            yield task, "" if task in known.tasks else task, methods


def _singles(finished: FinishedRuns, task: str) -> Mapping[int, BySeed]:
    """Return the networks with one layer, by the block behind which it stands."""
    methods = positions(finished.weights(task))
    return {block: finished.by_seed(task, method) for block, method in enumerate(methods, start=1)}


def _only(kind: type[Kind], methods: list[Method]) -> list[Kind]:
    return [method for method in methods if isinstance(method, kind)]


SECTIONS = (
    Section(
        "table1",
        "Accuracy against early stopping",
        "The further up and to the right, the better; bars are standard deviations over seeds, and the paper's own "
        "points are grey. The paper saw both GC networks above BranchyNet and the Baseline on every data set, and "
        "further to the right than BranchyNet.",
        _overall,
    ),
    Section(
        "figure-roc",
        "The gates' curves",
        "Each gate's threshold is moved over its whole range: thick lines are means over seeds, thin ones single "
        "seeds. The scale of negatives is logarithmic, because a gate that stops much works at the left. An exit's "
        "curve bends where the exit names a class of interest: its entropy tells nothing apart there, which costs it "
        "AUC but no early stopping at the losses that gates work at. In the paper the GC gate is above BranchyNet's "
        "exit on all data sets.",
        _roc,
    ),
    Section(
        "figure-position",
        "The position of one layer",
        "One layer is put behind each of the eight blocks in turn. The paper saw early stopping rise with depth, from "
        "10–40 % at a depth of 10 % to 70–90 % at 40 %, and sparsity fall, from 90–98 % at 40 % to 60–78 % at 80 %.",
        _position,
    ),
    Section(
        "figure-count",
        "The number of layers",
        "Layers are spread evenly over the network, and share α and β among them. In the paper accuracy hardly changes "
        "below five layers, and falls by less than two points beyond.",
        _count,
    ),
    Section(
        "figure-modes",
        "Several gates",
        "Eight gates in one network work alone (independent) or all together up to a position (incremental); beside "
        "them stand networks that were trained with a single gate there. All are compared at 1 % of positives "
        "lost, the gates together at the loss of all. The paper saw incremental gating stop the most.",
        _modes,
    ),
    Section(
        "figure-alpha",
        "The effect of α",
        "A gate without compression is trained with ever more weight. In the paper the network is above the Baseline "
        "for every α from 0.05 to 0.8, and the gate gets better as α grows.",
        _alpha,
    ),
    Section(
        "figure-beta",
        "The effect of β",
        "The compression is trained with ever more weight, at a fixed α. The paper saw a density of 0.579 without any "
        "regularisation and of 2.7 % at β = 0.72, and an accuracy 1 to 4.5 % above the Baseline's below that β.",
        _beta,
    ),
    Section(
        "figure-weights",
        "The weights of the mask",
        "Each dimension of the mask has a weight φ, which is clipped to [0, 1]; what is above ½ is kept. The paper "
        "shows such a histogram for CIFAR-10 too; its regularisation pushes most weights to 0.",
        _phi,
    ),
    Section(
        "figure-gate-input",
        "The gate's input",
        "The mask stays behind block 4, and the gate reads another block. In the paper both the gate and the network "
        "are best when the gate reads what the mask lets through, and fall off on either side.",
        _gate_input,
    ),
    Section(
        "figure-two-stages",
        "Training in two stages",
        "Gate and network are trained by turns of N epochs, with no gradient between them. In the paper training all "
        "at once is better than any N, and by turns it is slightly better to have no compression.",
        _two_stages,
    ),
    Section(
        "figure-dropout",
        "Is it the layer, or its noise?",
        "Not in the paper. In the lite profile masks are drawn while training, which is noise, and noise alone keeps "
        "a network from learning its training data by heart. So the network as it is was trained with plain dropout "
        "in the layer's place too. What a GC network has above that is the layer's; the rest any noise would give.",
        _dropout,
    ),
)
"""In the order of the page; each experiment has one."""
