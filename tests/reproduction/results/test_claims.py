"""Claims agree with a plain computation over the result files: with all, with some and with no runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import fake_results
from penstock.errors import DataError
from reproduction.experiments.methods import GC, Baseline, BranchyNet
from reproduction.experiments.paper_experiments import (
    GRIDS,
    PAPER_WEIGHTS,
    PUBLIC_TASKS,
    counts,
    gate_every_block,
    positions,
    table1,
)
from reproduction.experiments.runs import Run
from reproduction.results.claims import Claim, claims
from reproduction.results.paper_table1 import PAPER_TABLE1, ROWS
from reproduction.sweep.selected_weights import LossWeights

PAPER = Path(__file__).parents[4] / "shared" / "paper"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """All results, made up."""
    results = tmp_path_factory.mktemp("results")
    fake_results.write(results, fake_results.every_run(results))
    return results


def of(found: list[Claim], data: str, start: str) -> Claim:
    """The one claim on this data that starts so."""
    (claim,) = (claim for claim in found if claim.data == data and claim.claim.startswith(start))
    return claim


def value(found: list[Claim], data: str, start: str) -> float:
    return of(found, data, start).value


def read(folder: Path, task: str, method: str) -> list[dict]:
    """The test parts of three seeds, by the names of the files alone."""
    return [json.loads((folder / f"lite/{task}/{method}/seed-{seed}.json").read_text()) for seed in (0, 1, 2)]


@pytest.mark.parametrize("task", PUBLIC_TASKS)
def test_the_rows_of_table_1_are_compared_seed_by_seed(folder, task) -> None:
    found = claims(folder, "lite")
    weights = PAPER_WEIGHTS[task]
    ours, accurate = (read(folder, task, f"GC-a{a:g}-b{b:g}-4") for a, b in (weights.trade_off, weights.accuracy))
    branchy, plain = read(folder, task, "BranchyNet-4"), read(folder, task, "Baseline")
    for lost, text in (("0.005", "0.5 %"), ("0.01", "1 %"), ("0.02", "2 %")):
        stops = [[r["test"]["gates"][0]["early_stopping_at"][lost] for r in group] for group in (ours, branchy)]
        claimed = value(found, task, f"best trade-off: early stopping at {text} of positives lost, minus")
        assert claimed == pytest.approx(np.subtract(*stops).mean(), abs=1e-8)
        spread = of(found, task, f"best trade-off: early stopping at {text} of positives lost, minus").std
        assert spread == pytest.approx(np.subtract(*stops).std(ddof=1), abs=1e-8)
    aucs = [np.mean([r["test"]["gates"][0]["auc"] for r in group]) for group in (ours, branchy)]
    assert value(found, task, "best trade-off: AUC") == pytest.approx(aucs[0] - aucs[1], abs=1e-8)
    for group, row in ((ours, "best trade-off"), (accurate, "best accuracy")):
        sparsity = np.mean([r["activation_sparsity"] for r in group])
        assert value(found, task, f"{row}: activation sparsity") == pytest.approx(sparsity, abs=1e-8)
        accuracy = np.mean([r["test"]["points"]["accurate"]["accuracy"] for r in group])
        before = np.mean([r["test"]["points"]["even"]["accuracy"] for r in plain])
        claimed = value(found, task, f"{row}: accuracy minus the Baseline's, in points,")
        assert claimed == pytest.approx(100 * (accuracy - before), abs=1e-7)
    stopped = np.mean([r["test"]["points"]["accurate"]["early_stopping"] for r in accurate])
    assert value(found, task, "best accuracy: early stopping") == pytest.approx(stopped, abs=1e-8)


@pytest.mark.parametrize("task", PUBLIC_TASKS)
def test_ranks_are_correlated_with_depth(folder, task, tmp_path) -> None:
    """Against Spearman's formula for ranks without ties, with noise that mixes the positions."""
    draw = np.random.default_rng(3)

    def shuffle(run: Run, result: dict) -> None:
        result["activation_sparsity"] = draw.random()
        result["test"]["gates"][0]["early_stopping_at"]["0.01"] = draw.random()

    methods = positions(PAPER_WEIGHTS[task])
    fake_results.write(tmp_path, [Run(task, method, seed) for method in methods for seed in (0, 1, 2)], shuffle)
    a, b = PAPER_WEIGHTS[task].trade_off
    places = [read(tmp_path, task, f"GC-a{a:g}-b{b:g}-{block}") for block in range(1, 9)]
    found = claims(tmp_path, "lite")
    for name, quantity in (
        ("early stopping", lambda r: r["test"]["gates"][0]["early_stopping_at"]["0.01"]),
        ("activation sparsity", lambda r: r["activation_sparsity"]),
    ):
        means = [np.mean([quantity(r) for r in place]) for place in places]
        ranks = [sum(other < one for other in means) for one in means]
        spearman = 1 - 6 * sum((rank - i) ** 2 for i, rank in enumerate(ranks)) / (8 * 63)
        assert value(found, task, f"position: rank correlation of {name}") == pytest.approx(spearman, abs=1e-8)
    assert of(claims(folder, "lite"), task, "position: rank correlation of activation").holds is True


def test_a_flat_line_does_not_rise(tmp_path) -> None:
    def flatten(run: Run, result: dict) -> None:
        result["activation_sparsity"] = 0.9

    methods = positions(PAPER_WEIGHTS["cifar10"])
    fake_results.write(tmp_path, [Run("cifar10", method, seed) for method in methods for seed in (0, 1, 2)], flatten)
    flat = of(claims(tmp_path, "lite"), "cifar10", "position: rank correlation of activation sparsity")
    assert (flat.value, flat.holds, flat.seeds) == (0.0, False, (0, 1, 2))


@pytest.mark.parametrize("task", ["fashion-mnist", "wake-word"])
def test_several_gates_are_compared_at_their_worst_position(task, tmp_path) -> None:
    """With noise instead of results, so that the worst position is anywhere."""
    draw = np.random.default_rng(4)

    def shuffle(run: Run, result: dict) -> None:
        for row in [*result["test"]["gates"], *result["test"].get("modes", {}).get("incremental", [])]:
            row["early_stopping_at"]["0.01"] = draw.random()

    methods = [*positions(PAPER_WEIGHTS[task]), gate_every_block(PAPER_WEIGHTS[task])]
    fake_results.write(tmp_path, [Run(task, method, seed) for method in methods for seed in (0, 1, 2)], shuffle)
    a, b = PAPER_WEIGHTS[task].trade_off
    eight = read(tmp_path, task, f"GC-a{a:g}-b{b:g}-1.2.3.4.5.6.7.8")
    independent, single = [], []
    for k in range(8):
        one = read(tmp_path, task, f"GC-a{a:g}-b{b:g}-{k + 1}")
        together = [r["test"]["modes"]["incremental"][k]["early_stopping_at"]["0.01"] for r in eight]
        alone = [r["test"]["gates"][k]["early_stopping_at"]["0.01"] for r in eight]
        only = [r["test"]["gates"][0]["early_stopping_at"]["0.01"] for r in one]
        independent.append(np.mean(together) - np.mean(alone))
        single.append(np.mean(together) - np.mean(only))
    assert np.argmin(independent) > 0 < np.argmin(single)
    several = "several gates at 1 % of positives lost: incremental minus"
    found = claims(tmp_path, "lite")
    assert value(found, task, f"{several} independent") == pytest.approx(min(independent), abs=1e-8)
    assert value(found, task, f"{several} one gate only") == pytest.approx(min(single), abs=1e-8)
    assert of(found, task, f"{several} one gate only").holds is False


def test_every_problem_has_its_claims_and_all_are_plain_json(folder) -> None:
    found = claims(folder, "lite")
    assert [sum(claim.data == task for claim in found) for task in PUBLIC_TASKS] == [13, 11, 11, 13]
    for claim in found:
        plain = json.loads(json.dumps(claim.to_json()))
        allowance = ["positives_that_may_be_lost"] * ("of positives lost" in claim.quantity)
        spread = ["standard_deviation"] * claim.quantity.startswith("best")
        assert list(plain) == ["claim", "data", "value", "sign", "reach", "holds", "seeds", *spread, *allowance]
        assert plain["seeds"] == [0, 1, 2]
        reached = plain["value"] >= plain["reach"] if plain["sign"] == ">=" else plain["value"] <= plain["reach"]
        assert plain["holds"] is reached
        assert plain["claim"].endswith(f"is {'at least' if plain['sign'] == '>=' else 'at most'} {plain['reach']:g}")


def test_without_runs_no_claim_has_a_value(tmp_path) -> None:
    found = claims(tmp_path, "lite")
    assert len(found) == 48
    assert {(claim.value, claim.holds, claim.seeds, claim.status) for claim in found} == {
        (None, None, (), "not run yet")
    }


def test_differences_are_taken_between_the_seeds_that_both_have(tmp_path) -> None:
    ours, other = GC(*PAPER_WEIGHTS["cifar10"].trade_off), BranchyNet()
    fake_results.write(tmp_path, [Run("cifar10", ours, seed) for seed in (1, 2)])
    fake_results.write(tmp_path, [Run("cifar10", other, seed) for seed in (0, 1)])
    found = claims(tmp_path, "lite")
    auc = of(found, "cifar10", "best trade-off: AUC")
    pair = [fake_results.plausible(Run("cifar10", method, 1))["test"]["gates"][0]["auc"] for method in (ours, other)]
    assert auc.seeds == (1,) and auc.holds is None and auc.status == "1 of 3 seeds"
    assert auc.value == pytest.approx(pair[0] - pair[1], abs=1e-8)
    assert of(found, "cifar10", "best trade-off: activation sparsity").seeds == (1, 2)
    assert of(found, "cifar10", "best trade-off: accuracy minus").value is None


def test_a_claim_that_just_misses_is_missed_and_reads_so(tmp_path) -> None:
    runs = [Run("wake-word", GC(*PAPER_WEIGHTS["wake-word"].trade_off), seed) for seed in (0, 1, 2)]
    for sparsity, holds, shown in ((0.93, True, "0.9300"), (0.9299999, False, "0.9299999")):
        fake_results.write(tmp_path, runs, lambda _, result, s=sparsity: result.update(activation_sparsity=s))
        claim = of(claims(tmp_path, "lite"), "wake-word", "best trade-off: activation sparsity")
        assert (claim.holds, claim.value_text) == (holds, shown)


@pytest.mark.parametrize(("accuracy", "holds"), [(0.8, True), (0.79999, False)])
def test_what_a_float_cannot_write_decides_nothing(tmp_path, accuracy, holds) -> None:
    assert 100 * 0.8 - 100 * 0.803 < -0.3  # though it is just that

    def fix(run: Run, result: dict) -> None:
        for point in result["test"]["points"].values():
            point["accuracy"] = 0.803 if isinstance(run.method, Baseline) else accuracy

    rows = table1(PAPER_WEIGHTS["cifar10"])
    fake_results.write(tmp_path, [Run("cifar10", method, seed) for method in rows for seed in (0, 1, 2)], fix)
    assert of(claims(tmp_path, "lite"), "cifar10", "best trade-off: accuracy minus").holds is holds


def test_the_weights_that_a_sweep_chose_are_followed(tmp_path) -> None:
    chosen = replace(PAPER_WEIGHTS["cifar10"], trade_off=(0.33, 0.44))
    run = Run("cifar10", GC(0.33, 0.44), 0)
    fake_results.write(tmp_path, [run])
    start = "best trade-off: activation sparsity"
    assert of(claims(tmp_path, "lite"), "cifar10", start).value is None
    chosen.write(tmp_path, "lite", "cifar10", {})
    assert LossWeights.load(tmp_path, "lite", "cifar10") == chosen
    expected = fake_results.plausible(run)["activation_sparsity"]
    assert of(claims(tmp_path, "lite"), "cifar10", start).value == pytest.approx(expected, abs=1e-8)
    assert counts(chosen, GRIDS["lite"])[0] == run.method


def test_a_profile_that_is_not_known_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match=r"'quick'.* paper, lite"):
        claims(tmp_path, "quick")


@given(
    st.floats(-2, 2).map(lambda number: round(number, 9)),
    st.sampled_from([0.0, 0.93, -0.3, 0.5, 0.8, -0.8]),
    st.sampled_from([">=", "<="]),
    st.integers(-9, 9),
)
def test_a_value_never_reads_as_the_other_side_of_its_reach(number, reach, sign, nudge) -> None:
    for one in (number, round(reach + nudge * 1e-9, 9), round(reach + nudge * 1e-5, 9)):
        claim = Claim("x", "data", one, sign, reach, (0,), (0,))
        assert replace(claim, value=float(claim.value_text)).holds is claim.holds
        assert claim.holds is (one == reach or (one > reach) == (sign == ">="))


@pytest.mark.skipif(not PAPER.is_dir(), reason="the paper's text is not beside the repository")
def test_the_published_rows_are_those_of_the_paper() -> None:
    text = "\n".join(file.read_text() for file in PAPER.glob("*.txt"))
    table = text[text.index(r"\label{tab:overall}") :]
    number = r"\$?\{?(?:\\boldsymbol\{)?([\d.]+)\\pm([\d.]+)"
    rows = re.findall(
        number + r"\}?\$\s*&\s*\$([\d.]+)\\%\$\s*&\s*\$([\d.]+)\\%\$", table[: table.index(r"\end{table")]
    )
    printed = [tuple(map(float, row)) for row in rows]
    assert len(printed) == 5 * len(ROWS)
    named = ("fashion-mnist", "cifar10", "imagenet", "hey-snips", "speech-commands")
    ours = [row for name in named for row in PAPER_TABLE1[name]]
    assert [row.method for row in ours] == 5 * list(ROWS)
    for row, (accuracy, std, stopping, sparsity) in zip(ours, printed, strict=True):
        assert (row.accuracy, row.accuracy_std) == (accuracy, std)
        assert (row.early_stopping, row.activation_sparsity) == pytest.approx((stopping / 100, sparsity / 100))
    assert PAPER_TABLE1["wake-word"] == PAPER_TABLE1["hey-snips"]
