"""The page agrees with the result files, whichever of them exist, and is the same each time."""

import json
import re
import shutil
import sys
from dataclasses import asdict
from math import comb, log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import fake_results
from penstock.errors import DataError, StorageError
from reproduction.__main__ import main
from reproduction.experiments.methods import GC
from reproduction.experiments.paper_experiments import EXPERIMENTS, PAPER_WEIGHTS, PUBLIC_TASKS
from reproduction.experiments.tasks import TASKS
from reproduction.page.findings import alpha_finding, count_finding, gate_input_finding, two_stages_finding
from reproduction.page.markdown import table
from reproduction.page.page import write_page
from reproduction.page.sections import SECTIONS
from reproduction.page.tables import MaskSize
from reproduction.results.claims import claims
from reproduction.sweep.pareto import Trial

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> tuple[Path, Path, list[Path]]:
    """All results, made up, and their page."""
    folder = tmp_path_factory.mktemp("complete")
    results, page = folder / "results", folder / "docs" / "page.md"
    fake_results.write(results, fake_results.every_run(results))
    return results, page, write_page(results, "lite", page)


def cells(text: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by their first cell."""
    below = text[text.index(f"{heading}\n") :]
    lines = re.search(r"(?:^\|.*\n)+", below, flags=re.MULTILINE)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
    return {row[0]: row[1:] for row in rows}


def test_each_experiment_has_a_section_and_a_picture(complete) -> None:
    _, page, written = complete
    text = page.read_text()
    assert sorted(section.experiment for section in SECTIONS) == sorted(EXPERIMENTS)
    for section in SECTIONS:
        assert f"### {section.heading}\n" in text and section.description in text
        picture = page.parent / "page" / section.file()
        assert picture in written
        assert f"](page/{section.file()})" in text
        assert 5_000 < picture.stat().st_size < 120_000
    assert "not run yet" not in text and "runs are finished" not in text
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (page.parent / target).exists()


def test_the_returned_files_are_those_written(complete) -> None:
    results, page, written = complete
    there = {path for path in page.parent.rglob("*") if path.is_file()} | {results / "claims.json"}
    assert set(written) == there and len(written) == len(there)
    assert written[-1] == page


def test_claims_are_in_the_file_and_on_the_page(complete) -> None:
    results, page, _ = complete
    text, found = page.read_text(), claims(results, "lite")
    assert json.loads((results / "claims.json").read_text()) == [claim.to_json() for claim in found]
    held, missed = (sum(claim.holds is verdict for claim in found) for verdict in (True, False))
    assert held and missed
    assert f"**{held} of 48 claims hold ({missed} missed).**" in text
    assert text.count("| MISSED |") == missed
    differs = text[text.index("## Differences from the paper") :]
    for claim in found:
        assert (f"- {claim.data}: {claim.claim}; measured: {claim.value_text}." in differs) == (claim.holds is False)


@pytest.mark.parametrize("task", PUBLIC_TASKS)
def test_table_1_agrees_with_the_files(complete, task) -> None:
    results, page, _ = complete
    rows = cells(page.read_text(), f"### {TASKS[task].title}")
    assert len(rows) == 6
    a, b = PAPER_WEIGHTS[task].trade_off
    files = [results / f"lite/{task}/GC-a{a:g}-b{b:g}-4/seed-{seed}.json" for seed in (0, 1, 2)]
    tests = [json.loads(file.read_text())["test"] for file in files]
    accurate = [test["points"]["accurate"] for test in tests]
    row = rows["GC, best trade-off"]
    assert row[:3] == [f"{a:g}", f"{b:g}", "3"]
    accuracy = [point["accuracy"] for point in accurate]
    assert row[3] == f"{np.mean(accuracy):.4f} ± {np.std(accuracy, ddof=1):.4f}"
    shares = [np.mean([point[name] for point in accurate]) for name in ("early_stopping", "positive_lost_rate")]
    assert row[4:6] == [f"{100 * share:.1f} %" for share in shares]
    assert row[7] == f"{np.mean([test['gates'][0]['auc'] for test in tests]):.4f}"
    for cell, lost in zip(row[8:11], ("0.005", "0.01", "0.02"), strict=True):
        assert cell == f"{100 * np.mean([test['gates'][0]['early_stopping_at'][lost] for test in tests]):.1f} %"
    assert rows["Baseline"][4:11] == ["0 %", "0 %", "0 %", "–", "–", "–", "–"]
    if task == "cifar10":
        assert row[11:] == ["0.93766 ± 0.06124", "92.23 %", "97.07 %"]


def test_the_same_results_give_the_same_bytes(tmp_path) -> None:
    results = tmp_path / "results"
    fake_results.write(results, EXPERIMENTS["figure-weights"].runs("lite", results=results))
    first = write_page(results, "lite", tmp_path / "one" / "page.md")
    listed = (results / "claims.json").read_bytes()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "page.md").write_text("an older page")
    again = write_page(results, "lite", tmp_path / "two" / "page.md")
    assert [path.name for path in again] == [path.name for path in first]
    assert {"weights.png", "page.md"} < {path.name for path in first}
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert (results / "claims.json").read_bytes() == listed
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()], "a temporary file was left"


def test_without_results_everything_is_listed_as_not_run(tmp_path) -> None:
    (tmp_path / "results").mkdir()
    written = write_page(tmp_path / "results", "lite", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert written == [tmp_path / "results" / "claims.json", tmp_path / "page.md"]
    assert "**0 of 48 claims hold (48 not run yet).**" in text
    assert "Every claim that was run holds." in text
    for name in EXPERIMENTS:
        assert f"*Not run yet*: `python -m reproduction run {name} --profile lite`." in text
    assert all(row["value"] is None for row in json.loads(written[0].read_text()))


def test_some_results_give_some_of_the_page(tmp_path) -> None:
    there = fake_results.every_run(tmp_path)[::4]
    fake_results.write(tmp_path, there)
    write_page(tmp_path, "lite", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    for section in SECTIONS:
        runs = set(EXPERIMENTS[section.experiment].runs("lite", results=tmp_path))
        done = len(runs & set(there))
        command = f"`python -m reproduction run {section.experiment} "
        notice = f"*{done} of {len(runs)} runs are finished*; to run the others: {command}"
        assert (notice in text) == (0 < done < len(runs))
        assert (tmp_path / "page" / section.file()).exists() == (done > 0)
    assert "| 1 of 3 |" in text and "| 0 of 3 |" in text
    assert "± 0.0000" not in text[text.index("## Table 1") :], "one seed has no standard deviation"
    begun = sum(claim.value is not None for claim in claims(tmp_path, "lite"))
    assert 0 < begun < 48 and "| 1 of 3 seeds |" in text
    assert f"**0 of 48 claims hold ({begun} with missing seeds, {48 - begun} not run yet).**" in text


def test_what_was_tried_stands_at_the_end(tmp_path) -> None:
    row = {"problem": "cifar10", "trained_on": "10,000", "method": "GC(.6, .15)", "tried": "masks as fast as weights"}
    row |= {"seed": 0, "accuracy": 0.7406, "early_stopping_at": [0.2, 0.25, 0.35], "activation_sparsity": 0.42}
    plain = row | {"method": "Baseline", "tried": "|", "early_stopping_at": []}
    (tmp_path / "tried.json").write_text(json.dumps([row, plain]))
    write_page(tmp_path, "paper", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert re.search(r"masks as fast as weights \| +0 \| +0.7406 \| +0.200 \| +0.250 \| +0.350 \| +0.420 \|", text)
    assert re.search(r"Baseline +\| \\\| +\| +0 \| +0.7406 \| +– \| +– \| +– \| +0.420 \|", text)
    assert "python -m reproduction results --profile paper" in text


def test_a_picture_that_the_page_no_longer_shows_is_deleted(tmp_path) -> None:
    results, folder = tmp_path / "results", tmp_path / "page"
    fake_results.write(results, EXPERIMENTS["figure-weights"].runs("lite", results=results))
    write_page(results, "lite", tmp_path / "page.md")
    (folder / "mine.png").write_text("not of the page")
    assert (folder / "weights.png").exists()
    shutil.rmtree(results / "lite")
    write_page(results, "lite", tmp_path / "page.md")
    assert [path.name for path in folder.iterdir()] == ["mine.png"]


def test_a_sweep_is_named_with_the_number_of_its_settings(tmp_path) -> None:
    trials = [
        Trial(GC(*PAPER_WEIGHTS["cifar10"].trade_off), 0.91, 0.9, 0.5, 0.95),
        Trial(GC(0.1, 0.2), 0.93, 0.8, 0.4, 0.5),
    ]
    PAPER_WEIGHTS["cifar10"].write(tmp_path, "lite", "cifar10", {"trials": [asdict(trial) for trial in trials]})
    write_page(tmp_path, "lite", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "for CIFAR-10 (2 settings)." in text
    reached = r"CIFAR-10 \| 0.7 \| 0.8 \| +0.9100 \| +90.0 % \| +50.0 % \| +95.0 % \| GC, best trade-off \|"
    assert re.search(reached, text)
    assert re.search(r"CIFAR-10 \| 0.1 \| 0.2 \| +0.9300 \| +80.0 % \| +40.0 % \| +50.0 % \| +\|", text)
    PAPER_WEIGHTS["cifar10"].write(tmp_path, "lite", "cifar10", {})
    with pytest.raises(DataError, match=r"chosen\.json .*trials"):
        write_page(tmp_path, "lite", tmp_path / "page.md")


def test_what_else_was_run_is_on_the_page(tmp_path) -> None:
    fake_results.write(tmp_path, EXPERIMENTS["table1"].runs("lite", ["hey-snips"], results=tmp_path))
    cifar10 = [run for run in EXPERIMENTS["figure-count"].runs("lite", ["cifar10"], results=tmp_path) if run.seed == 0]
    fake_results.write(tmp_path, cifar10)
    write_page(tmp_path, "lite", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "### Hey Snips\n" in text and "account or a form: ImageNet-2012. " in text
    assert {claim.data for claim in claims(tmp_path, "lite") if claim.holds is not None} == {"hey-snips"}
    assert (
        f"*{len(cifar10)} of {15 * 3} runs are finished*; to run the others: `python -m reproduction run figure-count"
        in text
    )
    assert "figure-modes --profile lite`.\n" in text, "what it shares with others does not make it run"


def test_a_deeper_analysis_of_another_data_set_has_a_picture_of_its_own(tmp_path) -> None:
    folder, alpha = tmp_path / "page", EXPERIMENTS["figure-alpha"]
    for tasks, pictures in (
        (["wake-word"], ["alpha-wake-word.png"]),
        (["cifar10"], ["alpha.png"]),
        (["cifar10", "wake-word"], ["alpha-wake-word.png", "alpha.png"]),
    ):
        shutil.rmtree(tmp_path / "lite", ignore_errors=True)
        fake_results.write(tmp_path, alpha.runs("lite", tasks, results=tmp_path))
        write_page(tmp_path, "lite", tmp_path / "page.md")
        text = (tmp_path / "page.md").read_text()
        assert sorted(path.name for path in folder.glob("alpha*")) == pictures
        there = len(tasks) * 15
        expected = len({"cifar10", *tasks}) * 15
        assert (
            f"*{there} of {expected} runs are finished*; to run the others: `python -m reproduction run figure-alpha"
            in text
        ) == (there < expected)
        assert ('The same experiment on wake word "marvin":\n' in text) == ("wake-word" in tasks)


def test_a_damaged_list_of_trials_is_said(tmp_path) -> None:
    for damaged in ("[{}]", "{", "[1]"):
        (tmp_path / "tried.json").write_text(damaged)
        with pytest.raises(DataError, match=r"tried\.json"):
            write_page(tmp_path, "lite", tmp_path / "page.md")


def test_the_claims_of_a_profile_do_not_replace_those_of_the_other(tmp_path) -> None:
    (tmp_path / "claims.json").write_text("of the lite profile")
    written = write_page(tmp_path, "paper", tmp_path / "page.md")
    assert written[-2].name == "claims-paper.json"
    assert (tmp_path / "claims.json").read_text() == "of the lite profile"


def test_refusals_say_what_to_do(tmp_path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        write_page(tmp_path / "nowhere", "lite", tmp_path / "page.md")
    with pytest.raises(DataError, match=r"page\.html"):
        write_page(tmp_path, "lite", tmp_path / "page.html")
    with pytest.raises(DataError, match=r"'quick'.* paper, lite"):
        write_page(tmp_path, "quick", tmp_path / "page.md")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"page\.md"):
        write_page(tmp_path, "lite", tmp_path / "file" / "page.md")


def test_the_command_makes_the_page(tmp_path, monkeypatch, capsys) -> None:
    def typed(*arguments: str, code: int = 0) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["reproduction", "results", *arguments])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        if code:
            return str(ended.value.code)
        assert not ended.value.code
        return captured.out

    assert "results" in typed(code=1)
    (tmp_path / "results").mkdir()
    shown = typed()
    assert (tmp_path / "docs" / "results.md").exists()
    assert "0 of 48 claims hold (48 not run yet)." in shown and "Written: docs/results.md" in shown
    assert max(map(len, shown.splitlines())) <= 100
    fake_results.write(
        tmp_path / "results", EXPERIMENTS["figure-roc"].runs("lite", ["wake-word"], results=tmp_path / "results")
    )
    plain = json.loads(typed("--out", "page.md", "--json"))
    assert plain["claims"] == [claim.to_json() for claim in claims(tmp_path / "results", "lite")]
    assert sum(claim["holds"] is True for claim in plain["claims"]) >= 4
    assert plain["written"][-2:] == ["results/claims.json", "page.md"] and "page/roc.png" in plain["written"]
    assert "python -m reproduction results --out" in typed("--help")


words = st.text("ab1.α±–%:-", max_size=8)


@given(st.lists(st.tuples(words, words), max_size=5))
def test_a_table_keeps_its_cells_and_is_as_wide_everywhere(rows) -> None:
    lines = table(["name", ">n"], rows).splitlines()
    assert len({len(line) for line in lines}) == 1
    read = [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines]
    assert read[0] == ("name", "n") and read[2:] == rows
    assert lines[1].startswith("|:--") and lines[1].endswith("-:|")


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(["a"], [["x|y\nz"]]).splitlines()[-1] == r"| x\|y z |"


@given(st.integers(1, 200_000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_no_code_of_a_mask_is_below_its_entropy(sizes) -> None:
    values, kept = sizes
    mask = MaskSize(values, kept)
    assert mask.entropy_bytes <= mask.bitmap_bytes + 1e-9
    assert mask.indices_bytes == kept * (2 if values <= 65_536 else 4)
    if values < 3000:  # count the masks with this many kept values; the entropy bounds their number from above
        assert log2(comb(values, kept)) / 8 <= mask.entropy_bytes + 1e-9
        assert mask.entropy_bytes <= (log2(comb(values, kept)) + log2(values + 1)) / 8 + 1e-9


def result(accuracy: float, auc: float = 0.9, stopping: float = 0.5) -> dict[int, dict]:
    """One seed, with what findings read."""
    gate = {"auc": auc, "early_stopping_at": {"0.01": stopping}}
    return {0: {"test": {"points": {"even": {"accuracy": accuracy}}, "gates": [None, gate]}}}


def test_findings_are_computed() -> None:
    assert count_finding({"here": {1: result(0.9), 2: {}, 8: result(0.88)}, "there": {1: result(0.5), 8: {}}}) == (
        "Here, from one layer to eight, accuracy changes by −2.00 points on here."
    )
    finding = alpha_finding(result(0.8), {0.1: result(0.81, 0.91), 0.5: result(0.79, 0.95), 0.7: {}})
    assert "at 1 of 2 values of α" in finding
    assert "AUC is 0.9100 at α = 0.1 and 0.9500 at α = 0.5" in finding
    assert gate_input_finding({0: result(0.9, 0.8), 4: result(0.8, 0.9)}) == (
        "Here the gate is best when it reads block 4, and the network is best when the gate reads the raw input."
    )
    finding = two_stages_finding(
        result(0.9, stopping=0.6), [result(0.88, stopping=0.7), result(0.89, stopping=0.5), {}]
    )
    assert "+1.00 points" in finding and "−10.00 points" in finding and "best of 2 " in finding
    assert two_stages_finding({}, [result(0.9)]) == alpha_finding({}, {0.1: result(0.9)}) == count_finding({}) == ""


def test_the_committed_page_is_what_the_committed_results_say(tmp_path) -> None:
    copy = tmp_path / "results"
    shutil.copytree(ROOT / "results", copy)
    write_page(copy, "lite", tmp_path / "results.md")
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text(), "make results"
    assert (copy / "claims.json").read_text() == (ROOT / "results" / "claims.json").read_text(), "make results"
