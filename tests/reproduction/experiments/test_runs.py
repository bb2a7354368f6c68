"""Runs are computed once, by one process, and never lost; what they measure is what a plain count says."""

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.datasets.splits import Labelled, Splits
from penstock.errors import DataError, StorageError, TrainingError
from penstock.gating.surgery import gate
from penstock.models import resnet8_1d
from penstock.runtime.locks import if_free
from penstock.training.fit import GatedLightningModule, History
from reproduction.baselines import branchynet
from reproduction.experiments import methods, tasks
from reproduction.experiments import runner as room
from reproduction.experiments.execute import Clock, execute_runs
from reproduction.experiments.measure import LOSS_LEVELS, choose_operating_points, measure, stream_weights
from reproduction.experiments.methods import (
    GC,
    Baseline,
    BranchyNet,
    C,
    Dropout,
    G,
    GateInput,
    Masks,
    TwoStage,
    method_key,
)
from reproduction.experiments.paper_experiments import EXPERIMENTS, PUBLIC_TASKS, spread
from reproduction.experiments.runner import Runner, build, compute
from reproduction.experiments.runs import Run, check_same_data

METHODS = [
    Baseline(),
    BranchyNet(),
    G(0.5),
    C(0.3),
    GC(0.5, 0.3),
    GC(0.5, 0.3, (2, 4, 6)),
    GateInput(0, 0.5, 0.3),
    GateInput(2, 0.5, 0.3),
    GateInput(4, 0.5, 0.3),
    GateInput(7, 0.5, 0.3),
    TwoStage(1, 0.5, 0.3),
    TwoStage(1, 0.5, None),
    Dropout(0.3),
]


def tones(n: int, seed: int) -> Labelled:
    """A quick task: noise, or one of two tones in it."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=generator)
    time_ = torch.arange(32) / 32
    wave = torch.stack([torch.zeros(32), (12 * time_).sin(), (40 * time_).sin()])
    x = 2 * wave[y] + 0.7 * torch.randn(n, 32, generator=generator)
    return Labelled(x.unsqueeze(1), y)


def _tones(folder, budget) -> Splits:
    return Splits(tones(384, 0), tones(300, 1), ("background", "low", "high"))


@pytest.fixture(autouse=True)
def small_task(monkeypatch) -> None:
    budget = replace(tasks.TASKS["wake-word"].lite, width=4, epochs=2, batch_size=64)
    task = tasks.Task("tones", "tones", "ResNet", _tones, resnet8_1d, budget, budget)
    monkeypatch.setitem(tasks.TASKS, "tones", task)
    room._read.cache_clear()


@pytest.mark.parametrize("method", METHODS, ids=method_key)
def test_each_method_trains_and_is_measured(method) -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    result = compute(Run("tones", method, 0), data)
    assert json.loads(json.dumps(result)) == result
    gated = not isinstance(method, (Baseline, C, Dropout))
    assert set(result["test"]["points"]) == (
        {"even", "accurate", "lost 0.005", "lost 0.01", "lost 0.02"} if gated else {"even"}
    )
    assert 0 < result["test"]["accuracy_open"] <= 1
    assert any(gate_ is not None for gate_ in result["test"]["gates"]) == gated
    if not gated:
        assert result["test"]["points"]["even"]["early_stopping"] == 0


def test_the_halves_of_a_gate_input_are_where_they_should_be() -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    early = build(Run("tones", GateInput(2, 0.5, 0.3), 0), data)
    assert [layer.gate is not None for layer in early.layers] == [True, False]
    assert [layer.compression is not None for layer in early.layers] == [False, True]
    late = build(Run("tones", GateInput(6, 0.5, 0.3), 0), data)
    assert [layer.gate is not None for layer in late.layers] == [False, True]
    plain = build(Run("tones", Baseline(), 0), data)
    x = data.test[0][:5]
    for net in (early, late):  # masks are full before the training
        torch.testing.assert_close(net.eval()(x).logits, plain.eval()(x).logits)


@pytest.mark.parametrize("masks", [Masks(), Masks(drawn=True, p=1.0)], ids=str)
@pytest.mark.parametrize(
    "method", [C(0.3), GC(0.5, 0.3, (2, 4)), GateInput(2, 0.5, 0.3), TwoStage(1, 0.5, 0.3)], ids=str
)
def test_the_budget_says_how_masks_are_trained(monkeypatch, method, masks) -> None:
    task = tasks.TASKS["tones"]
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, lite=replace(task.lite, masks=masks)))
    net = build(Run("tones", method, 0), task.data(None, "lite"))
    made = [layer.compression.mask_kind for layer in net.layers if layer.compression is not None]
    assert made and set(made) == {masks.kind}
    seen = []
    monkeypatch.setattr(methods, "fit", lambda *_, objective, **__: seen.append(objective) or History())
    monkeypatch.setattr(methods, "fit_in_two_stages", lambda *_, objective, **__: seen.append(objective) or [History()])
    method.train(net, None, masks)
    assert [objective.p for objective in seen] == [masks.p]


def test_dropout_is_the_network_as_it_is_in_deployment_and_noise_in_training() -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    plain, noisy = (build(Run("tones", method, 0), data) for method in (Baseline(), Dropout(0.5)))
    x = data.test[0][:5]
    torch.testing.assert_close(noisy.eval()(x).logits, plain.eval()(x).logits)
    noisy.train()
    assert not torch.equal(noisy(x).logits, noisy(x).logits)


def test_what_is_measured_is_what_a_plain_count_says() -> None:
    torch.manual_seed(0)
    x, y = tones(300, 5)
    net = gate(resnet8_1d(1, 3, 4), x[:1], at=["blocks.1", "blocks.5"]).eval()
    for layer in net.layers:
        layer.gate.threshold.fill_(0.0)
    thresholds = [0.05, -0.02]
    choices = choose_operating_points(net, (x, y))._replace(points={"even": thresholds})
    measured = measure(net, (x, y), choices, positive_share=0.25)
    result = measured["points"]["even"]
    share = {True: 0.25 / (y > 0).double().mean().item(), False: 0.75 / (y == 0).double().mean().item()}
    right, stopped = 0.0, []
    with torch.no_grad():
        out = net(x)
    for i in range(len(y)):
        stops = any(out.gates[k][i].double() < thresholds[k] for k in range(2))
        label = 0 if stops else int(out.logits[i].argmax())
        right += share[int(y[i]) > 0] * (label == y[i]) / len(y)
        stopped.append(stops)
    negatives = [s for s, label in zip(stopped, y, strict=True) if label == 0]
    assert result["accuracy"] == pytest.approx(right)
    assert result["early_stopping"] == pytest.approx(np.mean(negatives))
    modes = measured["modes"]
    assert modes["incremental"][-1]["early_stopping"] == result["early_stopping"]
    assert modes["independent"][0].items() <= modes["incremental"][0].items()
    assert modes["incremental"][0]["early_stopping_at"] == measured["gates"][0]["early_stopping_at"]


def test_thresholds_lose_no_more_than_they_may() -> None:
    torch.manual_seed(0)
    x, y = tones(1000, 5)
    model = resnet8_1d(1, 3, 4)
    for net in (gate(model, x[:1], at=0.4), gate(model, x[:1], at=[0.2, 0.4, 0.7]), branchynet(model, x[:1])):
        choices = choose_operating_points(net.eval(), (x, y))
        points = measure(net, (x, y), choices, positive_share=None)["points"]
        for lost in LOSS_LEVELS:
            point = points[f"lost {lost:g}"]
            assert lost - 0.005 < point["positive_lost_rate"] <= lost or point["early_stopping"] == 1
        assert points["lost 0.005"]["early_stopping"] <= points["lost 0.02"]["early_stopping"]


def test_the_accurate_point_stops_as_much_as_accuracy_allows() -> None:
    torch.manual_seed(0)
    x, y = tones(400, 5)
    model = resnet8_1d(1, 3, 4)
    for net in (gate(model, x[:1], at=0.4).eval(), branchynet(model, x[:1]).eval()):
        (threshold,) = choose_operating_points(net, (x, y)).points["accurate"]
        with torch.no_grad():
            out = net(x)
        said, is_exit = out.gates[0], out.gates[0].ndim == 2

        def accuracy(at, said=said, is_exit=is_exit, out=out):
            if is_exit:  # by hand: leave where the entropy is low, with the exit's label
                p = said.softmax(1)
                entropy = -(p * p.log()).sum(1) / np.log(3)
                stopped, label = (entropy / (1 - entropy)).log() < at, said.argmax(1)
            else:
                stopped, label = said < at, torch.zeros(len(y), dtype=torch.int64)
            return (torch.where(stopped, label, out.logits.argmax(1)) == y).double().mean().item()

        pass_logits = net.layers[0].gate.gate_logit(said)
        gate_every_block = {at: accuracy(at) for at in [*pass_logits.tolist(), -99.0]}
        assert accuracy(threshold) >= max(gate_every_block.values()) - 0.011  # not all thresholds were tried
        higher = [accuracy(at) for at in np.quantile(pass_logits.double(), np.linspace(0, 1, 401)) if at > threshold]
        assert all(one < max(gate_every_block.values()) for one in higher)


def test_a_cascade_is_compared_at_the_loss_of_all_its_gates() -> None:
    """The early stopping that a result names is what the path's thresholds do, at the loss that it names."""
    torch.manual_seed(0)
    x, y = tones(1000, 5)
    net = gate(resnet8_1d(1, 3, 4), x[:1], at=[0.2, 0.4, 0.7]).eval()
    choices = choose_operating_points(net, (x, y))
    x, y = tones(1000, 6)
    incremental = measure(net, (x, y), choices, positive_share=None)["modes"]["incremental"]
    with torch.no_grad():
        gates = torch.stack(net(x).gates, 1).double().numpy()
    for k, path in enumerate(choices.incremental):
        scores = gates[:, : k + 1]
        for lost in LOSS_LEVELS:
            level = sorted(path.levels(scores[y > 0]))[int(lost * int((y > 0).sum()))]
            thresholds = [t - 1e-9 for t in path.thresholds(level)]
            stopped = torch.tensor([any(s < t for s, t in zip(row, thresholds, strict=True)) for row in scores])
            assert stopped[y > 0].double().mean().item() <= lost
            said = incremental[k]["early_stopping_at"][f"{lost:g}"]
            assert said == pytest.approx(stopped[y == 0].double().mean().item(), abs=0.003)


def test_the_weights_of_a_stream_have_its_share_and_a_mean_of_one() -> None:
    positive = torch.tensor([True] * 30 + [False] * 70)
    weights = stream_weights(positive, 0.1)
    assert weights.mean().item() == pytest.approx(1)
    assert weights[positive].sum().item() == pytest.approx(10)


def test_a_finished_run_is_never_computed_again(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    wanted = [Run("tones", Baseline(), seed) for seed in (0, 1)]
    first = execute_runs(runner, wanted, progress=False)
    monkeypatch.setattr(room, "compute", lambda *_, **__: pytest.fail("computed again"))
    assert execute_runs(runner, wanted, progress=False) == first
    assert sorted(path.name for path in (tmp_path / "results").rglob("*.json")) == ["seed-0.json", "seed-1.json"]
    assert not list((tmp_path / "work").rglob("*.ckpt"))


def test_only_what_is_compressed_counts_for_sparsity() -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    for method in (GateInput(2, 0.5, 0.3), GC(0.5, 0.3), C(0.3)):
        net = build(Run("tones", method, 0), data)
        for layer in net.layers:
            if layer.compression is not None:
                layer.compression.phi.data.fill_(0.0)
        assert room._sparsity(net) == 1
    assert room._sparsity(build(Run("tones", G(0.5), 0), data)) == 0


def test_data_is_given_for_problems_that_there_are(tmp_path) -> None:
    with pytest.raises(DataError, match="there is no task cifar to give data for; known are fashion-mnist"):
        Runner(tmp_path, (("cifar", tmp_path),))
    words = Runner(tmp_path, (("speech-commands", tmp_path / "words"),))
    with pytest.raises(DataError, match=r"words"):  # where the wake word is looked for, too
        words.splits(Run("wake-word", Baseline(), 0))


def test_missing_data_is_said_before_the_first_run(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", (("speech-commands", tmp_path / "nowhere"),), tmp_path / "work")
    monkeypatch.setattr(room, "compute", lambda *_, **__: pytest.fail("hours went by"))
    with pytest.raises(DataError, match="nowhere"):
        execute_runs(runner, [Run("tones", Baseline(), 0), Run("wake-word", Baseline(), 0)], progress=False)


def test_what_is_no_result_is_said_to_be_none(tmp_path) -> None:
    run = Run("tones", Baseline(), 0)
    file = tmp_path / f"{run.key}.json"
    file.parent.mkdir(parents=True)
    for text in ("{}", "[1]", "no JSON"):
        file.write_text(text)
        with pytest.raises(DataError, match=r"seed-0.json is not a result \(.*\): delete it, and the run is computed"):
            run.result(tmp_path)


def test_results_of_another_budget_are_not_taken(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    run = Run("tones", Baseline(), 0)
    execute_runs(runner, [run], progress=False)
    task = tasks.TASKS["tones"]
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, lite=replace(task.lite, epochs=3)))
    with pytest.raises(DataError, match=r"seed-0.json was computed with epochs = 2 and not 3: move it away, or give"):
        execute_runs(runner, [run], progress=False)


def test_more_seeds_take_the_results_that_are_there(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    (before,) = execute_runs(runner, [Run("tones", Baseline(), 0)], progress=False)
    task = tasks.TASKS["tones"]
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, lite=replace(task.lite, seeds=(0, 1, 2, 3))))
    assert Run("tones", Baseline(), 0).result(runner.results) == before


def test_a_sweep_does_not_test_and_a_table_does_not_train_again(tmp_path, monkeypatch) -> None:
    runner, run = Runner(tmp_path / "results", work=tmp_path / "work"), Run("tones", GC(0.5, 0.3), 0)
    (validated,) = execute_runs(runner, [run], progress=False, test=False)
    assert "test" not in validated and run.result(runner.results) is None
    assert run.result(runner.results, tested=False) == validated
    whole = compute(run, tasks.TASKS["tones"].data(None, "lite"))
    trained = []
    step = GatedLightningModule.training_step
    monkeypatch.setattr(GatedLightningModule, "training_step", lambda *batch: trained.append(1) or step(*batch))
    (tested,) = execute_runs(runner, [run], progress=False)
    assert not trained
    assert {**tested, "seconds": 0} == {**whole, "seconds": 0} and tested["seconds"] == validated["seconds"]
    assert not list((tmp_path / "work").rglob("*.ckpt"))
    assert execute_runs(runner, [run], progress=False, test=False) == [tested]


def test_a_training_that_fails_does_not_stop_the_others(tmp_path, monkeypatch) -> None:
    runner, wanted = (
        Runner(tmp_path / "results", work=tmp_path / "work"),
        [Run("tones", Baseline(), seed) for seed in (0, 1, 2)],
    )
    train = Baseline.train

    def diverge(self, net, data, masks, **options):
        if options["seed"] == 0:
            raise TrainingError("the loss is nan")
        return train(self, net, data, masks, **options)

    monkeypatch.setattr(Baseline, "train", diverge)
    with pytest.raises(TrainingError, match=r"1 of 3 runs failed, and the others are done.*seed 0: the loss is nan"):
        execute_runs(runner, wanted, progress=False)
    assert [run.result(runner.results) is None for run in wanted] == [True, False, False]


def test_results_of_other_data_are_not_mixed(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    execute_runs(runner, [Run("tones", Baseline(), 0)], progress=False)
    task = tasks.TASKS["tones"]
    other = Splits(tones(384, 0), tones(300, 5), ("background", "low", "high"))
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, read=lambda *_: other))
    room._read.cache_clear()
    with pytest.raises(
        DataError, match=r"seed-0.json was computed from other data than the data at hand: .* in test\."
    ):
        execute_runs(runner, [Run("tones", Baseline(), 1)], progress=False)
    given = Runner(runner.results, (("tones", tmp_path),), runner.work)
    with pytest.raises(DataError, match="computed from other data"):  # though nothing is left to compute
        execute_runs(given, [Run("tones", Baseline(), 0)], progress=False)
    execute_runs(Runner(tmp_path / "elsewhere", work=runner.work), [Run("tones", Baseline(), 1)], progress=False)
    merged = (tmp_path / "elsewhere" / "lite").rename(tmp_path / "more")
    (merged / "tones" / "Baseline" / "seed-1.json").rename(tmp_path / "results/lite/tones/Baseline/seed-1.json")
    with pytest.raises(DataError, match=r"seed-1.json was computed from other data than that of .*seed-0.json"):
        check_same_data(tmp_path / "results", "lite", "tones")


def test_a_newer_or_poorer_result_is_refused(tmp_path) -> None:
    runner, run = Runner(tmp_path, work=tmp_path / "work"), Run("tones", Baseline(), 0)
    (result,) = execute_runs(runner, [run], progress=False)
    file = tmp_path / f"{run.key}.json"
    file.write_text(json.dumps(result | {"format": 99}))
    with pytest.raises(DataError, match="is a result in format 99, and this Penstock reads up to 1: update it"):
        run.result(tmp_path)
    file.write_text(json.dumps({name: value for name, value in result.items() if name != "layers"}))
    with pytest.raises(DataError, match=r"seed-0.json is not a result \(it lacks layers\): delete it"):
        run.result(tmp_path)


def test_a_place_that_cannot_be_written_is_said(tmp_path) -> None:
    (tmp_path / "results").write_text("a file where a folder should be")
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    with pytest.raises(StorageError, match=r"seed-0.lock could not be written and locked: .*\. Choose another folder"):
        runner.execute(Run("tones", Baseline(), 0))


def test_the_same_run_gives_the_same_result(tmp_path) -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    once, again = (compute(Run("tones", GC(0.5, 0.3), 1), data) for _ in range(2))
    once.pop("seconds"), again.pop("seconds")
    assert once == again


def test_a_damaged_result_is_said_and_not_overwritten(tmp_path) -> None:
    run = Run("tones", Baseline(), 0)
    file = tmp_path / f"{run.key}.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    with pytest.raises(DataError, match=r"seed-0.json is not a result .* delete it, and the run is computed again"):
        execute_runs(Runner(tmp_path, work=tmp_path / "work"), [run], progress=False)
    assert file.read_text() == "{"


def _hold(lock: Path, ready) -> None:
    with if_free(lock) as mine:
        ready.put(mine)
        time.sleep(60)


def test_a_run_that_another_process_computes_is_left_to_it_until_it_dies(tmp_path) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    run = Run("tones", Baseline(), 0)
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    other = context.Process(target=_hold, args=(tmp_path / "results" / ".locks" / f"{run.key}.lock", ready))
    other.start()
    assert ready.get(timeout=60)
    assert runner.execute(run) is None

    def kill(_: float) -> None:
        os.kill(other.pid, signal.SIGKILL)
        other.join()

    assert execute_runs(runner, [run], progress=False, wait=kill)[0]["run"]["seed"] == 0


def test_the_clock_counts_by_problem() -> None:
    clock, run = Clock(), Run("tones", Baseline(), 0)
    clock.note(run, 60)
    assert clock.left([run] * 3) == "about 3 min left"
    assert clock.left([replace(run, task="other")] * 90) == "about 1 h 30 min left"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_name_known_problems(name, tmp_path) -> None:
    experiment = EXPERIMENTS[name]
    assert set(experiment.tasks) <= set(PUBLIC_TASKS)
    every = experiment.runs("lite", results=tmp_path)
    assert len({run.key for run in every}) == len(set(every)) >= 3
    with pytest.raises(DataError, match="there is no task nowhere; known are fashion-mnist"):
        experiment.runs("lite", ["nowhere"], results=tmp_path)
    with pytest.raises(DataError, match="there is no profile 'quick'; known are paper, lite"):
        experiment.runs("quick", results=tmp_path)
    keys = {profile: {run.key for run in experiment.runs(profile, results=tmp_path)} for profile in ("paper", "lite")}
    assert len(keys["paper"]) >= len(keys["lite"]) * 10 / 3, "ten seeds, and no fewer points"


def test_several_layers_are_spread_evenly() -> None:
    for count in range(2, 9):
        blocks = spread(count)
        assert len(set(blocks)) == count and blocks[-1] == 8 and blocks[0] >= 1
