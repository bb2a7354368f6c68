"""The page of the paper's reproduction: every number of ours in it comes from result files.

It can be made at any time. What is not computed yet is listed as not run yet, and where seeds are missing it says so.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image  # matplotlib brings it

from penstock.errors import DataError
from penstock.runtime.files import write_atomically
from reproduction.experiments.measure import ACCURACY_TOLERANCE
from reproduction.experiments.paper_experiments import EXPERIMENTS
from reproduction.experiments.tasks import PROFILES, TASKS
from reproduction.page.sections import SECTIONS, Picture, Section
from reproduction.page.tables import budgets_table, claims_table, masks_table, sweeps_table, task_table, tried_table
from reproduction.results.claims import NOT_RUN, Claim, claims
from reproduction.results.finished_runs import FinishedRuns
from reproduction.results.paper_table1 import MEASURED_ON_OTHER_DATA, PAPER_TABLE1
from reproduction.results.summary import OPERATING_POINT
from reproduction.sweep.selected_weights import read_trials

DPI, COLOURS = 120, 96
TRIED = "tried.json"
"""Beside the results: what was tried where ours differs, measured on validation data."""


def write_page(results: Path, profile: str, page: Path) -> list[Path]:
    """Write the page, its pictures and ``claims.json``; return what was written, the page last.

    A picture of an older page that this one does not show is deleted.

    Args:
        results: the folder of `python -m reproduction run`.
        profile: "lite" or "paper".
        page: a file that ends in .md; its pictures go into the folder of the same name beside it.

    Raises:
        DataError: when the folder or the profile does not exist, or the page has another ending.
        StorageError: when something could not be written.
    """
    _check(results, profile, page)
    finished = FinishedRuns(results, profile)
    finished.check()
    found = claims(results, profile)
    drawn = {
        section.experiment: list(section.draw(finished)) for section in SECTIONS if _progress(finished, section)[0]
    }
    text = "\n".join(_page(finished, found, drawn, page.stem))
    folder = page.with_suffix("")
    written = [
        _write_picture(picture.figure, folder / section.file(picture.task))
        for section in SECTIONS
        for picture in drawn.get(section.experiment, ())
    ]
    listed = results / ("claims.json" if profile == "lite" else f"claims-{profile}.json")
    write_atomically(listed, (json.dumps([claim.to_json() for claim in found], indent=1) + "\n").encode())
    write_atomically(page, text.encode())
    for stale in {folder / section.file(of) for section in SECTIONS for of in ("", *TASKS)} - set(written):
        stale.unlink(missing_ok=True)
    return [*written, listed, page]


def claims_summary(found: Sequence[Claim]) -> str:
    """Say how many claims hold."""
    said = f"{sum(claim.holds is True for claim in found)} of {len(found)} claims hold"
    missed = sum(claim.holds is False for claim in found)
    begun, waiting = (
        sum(claim.holds is None and bool(claim.seeds) is some for claim in found) for some in (True, False)
    )
    counts = {"missed": missed, "with seeds still to come": begun, NOT_RUN: waiting}
    rest = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{said} ({', '.join(rest)})." if rest else f"{said}."


def _write_picture(figure: Figure, path: Path) -> Path:
    """Write a figure as a PNG of few colours, a third of the size: pages with pictures are kept in repositories."""
    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=DPI)
    Image.open(whole).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    write_atomically(path, small.getvalue())
    return path


def _check(results: Path, profile: str, page: Path) -> None:
    if profile not in PROFILES:
        raise DataError(f"there is no profile {profile!r}; known are {', '.join(PROFILES)}.")
    if not results.is_dir():
        raise DataError(
            f"there is no folder {results} with results: run `python -m reproduction run` first, or give the folder "
            "that it wrote to."
        )
    if page.suffix != ".md":
        raise DataError(f"the page {page} must end in .md: its pictures go into a folder of the name without that.")


def _progress(finished: FinishedRuns, section: Section) -> tuple[int, int]:
    return finished.progress(EXPERIMENTS[section.experiment])


def _page(
    finished: FinishedRuns, found: Sequence[Claim], drawn: dict[str, list[Picture]], folder: str
) -> Iterator[str]:
    """Yield the page in pieces, each one or more lines."""
    yield from _introduction(finished)
    yield from ("## Claims\n", f"**{claims_summary(found)}**\n", _CLAIMS, claims_table(found), "")
    yield from _table1(finished)
    yield "## Figures\n"
    for section in SECTIONS:
        yield from _section(finished, section, drawn.get(section.experiment, []), folder)
    yield from _masks(finished)
    yield from _differences(finished, found)


def _introduction(finished: FinishedRuns) -> Iterator[str]:
    yield "# The paper's results, reproduced\n"
    yield f"<!-- made by `python -m reproduction results --profile {finished.profile}`: do not edit by hand -->\n"
    yield (
        "The tables and figures of *Gated Compression Layers for Efficient Always-On Models*, trained and measured "
        f"anew with the profile `{finished.profile}`. `python -m reproduction run all --profile {finished.profile}` computes "
        f"the runs, and `python -m reproduction results --profile {finished.profile}` makes this page out of them, with "
        "every number in it. Choices are made on validation data; claims, tables and figures are measured on test "
        "data. Only the last table, of what was tried, is of validation data.\n"
    )
    absent = [TASKS[name].title for name in PAPER_TABLE1 if name not in finished.tasks()]
    if absent:
        yield (
            f"Not run here, because the data needs an account or a form: {', '.join(absent)}. The wake word "
            '"marvin", out of Speech Commands, stands beside the paper\'s keyword spotting, which is Hey Snips.\n'
        )
    yield "## Budgets\n"
    if finished.profile == "lite":
        yield (
            "The paper trains for 200 epochs on all of the data. Here a run takes minutes, on a part of the training "
            "data, such that the plain network ends near knowing it by heart, as after so many epochs. How large a "
            "part and how many epochs was settled on validation data, with an eye on where the paper's claims appear; "
            "what else was tried stands at the end of the page. Test figures of earlier budgets, missed claims among "
            "them, had been seen by then, so this is not a single look at the test data "
            "(docs/decisions/0010-experiments.md). Masks are drawn while training, not thresholded as the "
            "paper's are (docs/decisions/0012-drawn-masks.md), and the transmission cost is L1; a control at the end "
            "of the figures tells how much of the accuracy is owed to such noise alone.\n"
        )
    yield from (budgets_table(finished), "")


_CLAIMS = (
    "What the paper says of its networks, as numbers that ours must reach: means over seeds, and differences between "
    "runs of the same seed. Early stopping is compared at equal shares of positives lost, because a threshold can buy "
    "any early stopping. How many positives may be lost in the test data then stands in the last column: where it "
    "is none, a single sample decides, and two claims may rest on one measurement. Behind ± is the standard deviation "
    "over seeds, of what a mean is taken of.\n"
)


def _table1(finished: FinishedRuns) -> Iterator[str]:
    yield "## Table 1\n"
    yield (
        f'Accuracy, early stopping and positives lost are those at the operating point "{OPERATING_POINT}": thresholds at which '
        "the gate stops as much as it can, while the accuracy on validation data stays within "
        f"{100 * ACCURACY_TOLERANCE:g} points of the best that any threshold gives. A network without a gate has no threshold. AUC "
        "and the three columns behind it come from the gate's whole curve: the early stopping that it has where it "
        "loses so many of the positives. Behind ± is the standard deviation over seeds. The last three columns are the "
        "paper's.\n"
    )
    yield f"{_swept(finished)} Where there was none, they are the paper's own.\n"
    for task in finished.tasks():
        yield f"### {TASKS[task].title}\n"
        if task in MEASURED_ON_OTHER_DATA:
            yield f"The paper's figures are those of {MEASURED_ON_OTHER_DATA[task]}, which is another data set.\n"
        yield from (task_table(finished, task), "")


def _swept(finished: FinishedRuns) -> str:
    """Say for which data sets α and β were swept, and out of how many settings they come."""
    tried = {TASKS[name].title: len(read_trials(finished.results, finished.profile, name)) for name in finished.tasks()}
    swept = [f"{title} (out of {count} settings)" for title, count in tried.items() if count]
    return f"α and β were chosen by a sweep on validation data for {', '.join(swept) if swept else 'no data set yet'}."


def _section(finished: FinishedRuns, section: Section, drawn: Sequence[Picture], folder: str) -> Iterator[str]:
    there, wanted = _progress(finished, section)
    yield f"### {section.heading}\n"
    yield f"{section.description}\n"
    command = f"`python -m reproduction run {section.experiment} --profile {finished.profile}`"
    if not drawn:
        yield f"*{NOT_RUN.capitalize()}*: {command}.\n"
        return
    if there < wanted:
        yield f"*{there} of {wanted} runs are finished*; the others: {command}.\n"
    for picture in drawn:
        title = f" on {TASKS[picture.task].title}" if picture.task else ""
        if title:
            yield f"The same{title}:\n"
        if picture.finding:
            yield f"{picture.finding}\n"
        yield f"![{section.heading}{title}]({folder}/{section.file(picture.task)})\n"


def _masks(finished: FinishedRuns) -> Iterator[str]:
    yield "### The size of a mask\n"
    yield (
        "Bytes a sample, for the best trade-off: all values at the cut as 32-bit floats, and the kept ones. The mask "
        "itself is sent once: as a bit a value, or as the list of what is kept, in 16 bits each where they suffice. "
        "The last column is n·H(kept / n) / 8, the entropy of the mask, which a code for independent bits cannot go "
        "below. The paper counts ⌈log₂ n⌉ bits for each kept value.\n"
    )
    yield from (masks_table(finished), "")


def _differences(finished: FinishedRuns, found: Sequence[Claim]) -> Iterator[str]:
    yield "## Where ours differs\n"
    missed = [claim for claim in found if claim.holds is False]
    if missed:
        yield "\n".join(f"- {claim.data}: {claim.claim}; here it is {claim.value_text}." for claim in missed) + "\n"
    else:
        yield "No claim that was run is missed.\n"
    best = max(PAPER_TABLE1["fashion-mnist"], key=lambda row: row.accuracy)
    yield (
        f"The paper's direction counts more than its digits. Its accuracy of {best.accuracy:.3f} on Fashion-MNIST lies "
        "above the 0.967 of the best entry in the list that the data set's authors keep for the ten-class task. The "
        "paper's task forgives confusion among the odd classes, but T-shirt, pullover, coat and shirt, which are "
        "mixed up most, are all even and stay apart.\n"
    )
    if any(read_trials(finished.results, finished.profile, task) for task in finished.tasks()):
        yield (
            "What the sweeps tried, and chose by the rules of `python -m reproduction sweep --help`: means over seeds, "
            'on validation data, at the operating point "accurate".\n'
        )
        yield _folded("the sweeps", sweeps_table(finished))
    tried = finished.results / TRIED
    if tried.exists():
        yield (
            "What was tried on the way, a seed a row, on validation data. A seed moves accuracy by some tenths "
            "of a point, and early stopping at equal loss by much more, so these rows rank little.\n"
        )
        rows = _tried(tried)
        yield _folded(f"{len(rows)} trials", tried_table(rows))


def _folded(title: str, text: str) -> str:
    """Return a text that a reader unfolds."""
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>\n"


def _tried(file: Path) -> list[dict[str, Any]]:
    """Read what was tried.

    Raises:
        DataError: when the file is damaged.
    """
    try:
        rows: list[dict[str, Any]] = json.loads(file.read_text())
        tried_table(rows)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is not a list of trials ({error!r}): mend it, or move it away.") from error
    return rows
