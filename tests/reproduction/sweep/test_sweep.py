"""The rule of choice, and that a study goes on in its storage."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError, StorageError, TrainingError
from reproduction.experiments.methods import GC, Baseline, BranchyNet, C, G
from reproduction.experiments.paper_experiments import EXPERIMENTS, PAPER_WEIGHTS, task_weights
from reproduction.experiments.tasks import TASKS
from reproduction.sweep import sweep as room
from reproduction.sweep.pareto import Trial, best_accuracy, best_trade_off, pareto_front
from reproduction.sweep.sweep import SweepConfig, sweep

ONE_SEED = SweepConfig("wake-word", seeds=(0,))

shares = st.floats(0, 1)
trials = st.lists(st.builds(Trial, st.just(GC(0.5, 0.5)), shares, shares, shares, shares), min_size=1, max_size=12)


@given(trials)
def test_no_trial_beats_one_of_the_front(trials) -> None:
    front = pareto_front(trials)
    assert front
    for one in trials:
        beaten = any(
            all(b >= a for a, b in zip(one.objectives, o.objectives, strict=True)) and o.objectives != one.objectives
            for o in trials
        )
        assert (one in front) == (not beaten)


@given(trials)
def test_the_most_accurate_that_fulfils_all_is_chosen(trials) -> None:
    front = pareto_front(trials)
    good = [t for t in front if t.early_stopping >= 0.3 and t.activation_sparsity >= 0.4]
    chosen = best_accuracy(trials, early_stopping=0.3, sparsity=0.4)
    assert chosen in front
    if good:
        assert chosen.accuracy == max(t.accuracy for t in good)
    good = [t for t in trials if t.accuracy >= 0.5 and t.activation_sparsity >= 0.4]  # what beats one is as good
    if good:
        chosen = best_trade_off(trials, accuracy=0.5, sparsity=0.4)
        assert chosen.stopping_at_loss == max(t.stopping_at_loss for t in good)


def test_where_nothing_fulfils_all_the_nearest_is_chosen() -> None:
    near, far = Trial(GC(0.1, 0.1), 0.9, 0.8, 0.8, 0.39), Trial(GC(0.2, 0.1), 0.95, 0.5, 0.5, 0.1)
    assert best_accuracy([far, near]) is near
    with pytest.raises(DataError, match="no finished trial"):
        best_accuracy([])


class FakeRunner:
    def __init__(self, results):
        self.results = results
        self.executed = []

    def splits(self, run):
        return None

    def data_folder(self, run):
        return None

    def execute(self, run, *, test):
        assert not test, "a sweep must not see test data"
        self.executed.append(run)
        if isinstance(run.method, Baseline):
            return {"validation": {"accuracy_open": 0.9 + run.seed / 100}}
        point = {"accuracy": 1 - run.method.beta / 4 + run.seed / 100, "early_stopping": run.method.alpha}
        curve = {"early_stopping_at": {"0.005": run.method.alpha, "0.01": run.method.alpha, "0.02": 1.0}}
        validation = {"points": {"accurate": point}, "gates": [curve]}
        if len(run.method.blocks) > 1:
            validation["modes"] = {"incremental": [curve]}
        return {"validation": validation, "activation_sparsity": run.method.beta / 2}


pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # of what is experimental in optuna


@pytest.mark.parametrize("storage", ["{}/sweep.log", "sqlite:///{}/sweep.db"])
def test_a_study_goes_on_in_its_storage(tmp_path, storage) -> None:
    where, runner, seen = storage.format(tmp_path), FakeRunner(tmp_path), []
    first = sweep(
        runner, ONE_SEED, trials=3, storage=where, initial=[(0.3, 0.7)], on_trial=lambda *one: seen.append(one)
    )
    assert seen == [(trial, i + 1) for i, trial in enumerate(first)] and first[0].method == GC(0.3, 0.7)
    more = sweep(runner, ONE_SEED, trials=5, storage=where, initial=[(0.3, 0.7)])
    assert more[:3] == first and len(more) == 5
    assert sweep(runner, ONE_SEED, trials=5, storage=where) == more and len(runner.executed) == 5
    assert all(trial.accuracy == 1 - trial.method.beta / 4 for trial in more)
    assert all(trial.stopping_at_loss == pytest.approx((1 + 2 * trial.method.alpha) / 3) for trial in more)
    several = SweepConfig("wake-word", space=room.SearchSpace(positions=True, max_layers=3), seeds=(0,))
    layers = sweep(runner, several, trials=4, storage=where)
    assert len(layers) == 4 and all(1 <= len(trial.method.blocks) <= 3 for trial in layers)


def test_the_choice_is_what_an_experiment_uses(tmp_path) -> None:
    trials = [Trial(GC(0.2, 0.3), 0.95, 0.9, 0.5, 0.5), Trial(GC(0.4, 0.9), 0.92, 0.9, 0.6, 0.95)]
    room.select_weights(FakeRunner(tmp_path), SweepConfig("cifar10"), trials)
    table = EXPERIMENTS["table1"].runs("lite", ["cifar10"], results=tmp_path)
    methods = [run.method for run in table if run.seed == 0]
    assert methods == [Baseline(), BranchyNet(), G(0.4), C(0.9), GC(0.4, 0.9), GC(0.2, 0.3)]
    assert task_weights(tmp_path, "lite", "fashion-mnist") == PAPER_WEIGHTS["fashion-mnist"]
    (tmp_path / "lite" / "cifar10" / "chosen.json").write_text('{"weights": {"gate": 0.5}}')
    with pytest.raises(DataError, match=r"chosen\.json.*trade_off"):
        task_weights(tmp_path, "lite", "cifar10")


def test_the_trade_off_must_be_as_accurate_by_a_margin(tmp_path) -> None:
    floor = 0.91 - 0.001 + 0.01 / 3**0.5  # the mean of 0.90, 0.91 and 0.92, the slack, and the mean's standard error
    luckier = Trial(GC(0.6, 0.9), floor - 1e-6, 0.9, 0.8, 0.95)
    trials = [luckier, Trial(GC(0.4, 0.9), floor + 1e-6, 0.9, 0.6, 0.95)]
    written = room.select_weights(FakeRunner(tmp_path), SweepConfig("cifar10"), trials)
    choice = json.loads(written.read_text())
    assert choice["weights"]["trade_off"] == [0.4, 0.9]
    assert choice["rules"]["trade_off"]["at_least"]["accuracy"] == pytest.approx(floor)
    alone = room.select_weights(FakeRunner(tmp_path), SweepConfig("cifar10", seeds=(1,)), trials)
    assert json.loads(alone.read_text())["rules"]["trade_off"]["at_least"]["accuracy"] == pytest.approx(0.909)


def test_a_trial_reads_well() -> None:
    text = "α 0.2, β 0.3, after 4: accuracy 95.00%, early stopping 90.0% (50.0% at equal loss), sparsity 50.0%"
    assert str(Trial(GC(0.2, 0.3), 0.95, 0.9, 0.5, 0.5)) == text


def test_a_storage_that_is_none_is_refused() -> None:
    with pytest.raises(DataError, match="'sweep'"):
        sweep(FakeRunner(None), ONE_SEED, trials=1, storage="sweep")


@pytest.mark.parametrize("storage", ["{}/no/folder/sweep.log", "sqlite:///{}/no/folder/s.db", "{}/damaged.log"])
def test_a_storage_that_cannot_be_opened_is_said(tmp_path, storage) -> None:
    (tmp_path / "damaged.log").write_text("{\n")
    where = storage.format(tmp_path)
    with pytest.raises(StorageError, match=re.escape(where)):
        sweep(FakeRunner(tmp_path), ONE_SEED, trials=1, storage=where)


def test_a_setting_that_two_processes_began_with_counts_once(tmp_path) -> None:
    runner, where, inside = FakeRunner(tmp_path), f"{tmp_path}/sweep.log", []

    def join(trial, done) -> None:
        if not inside:  # another process, while the first trial is still running
            inside.append(1)
            sweep(runner, ONE_SEED, trials=1, storage=where, initial=[(0.3, 0.7)])

    found = sweep(runner, ONE_SEED, trials=2, storage=where, initial=[(0.3, 0.7)], on_trial=join)
    assert [trial.method for trial in found] == [GC(0.3, 0.7)]


def test_a_trial_that_diverges_is_left_out(tmp_path, monkeypatch) -> None:
    runner = FakeRunner(tmp_path)
    execute = runner.execute

    def diverge(run, *, test):
        if run.method == GC(0.3, 0.7):
            raise TrainingError("the loss is nan")
        return execute(run, test=test)

    monkeypatch.setattr(runner, "execute", diverge)
    found = sweep(runner, ONE_SEED, trials=2, storage=f"{tmp_path}/sweep.log", initial=[(0.3, 0.7)])
    assert len(found) == 2 and GC(0.3, 0.7) not in [trial.method for trial in found]


def test_what_comes_first_is_tried_again_where_its_process_died(tmp_path, monkeypatch) -> None:
    runner, where = FakeRunner(tmp_path), f"{tmp_path}/sweep.log"
    monkeypatch.setattr(room, "_try", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))  # as a kill: no trace of it
    with pytest.raises(KeyboardInterrupt):
        sweep(runner, ONE_SEED, trials=1, storage=where, initial=[(0.3, 0.7)])
    monkeypatch.undo()
    assert sweep(runner, ONE_SEED, trials=1, storage=where, initial=[(0.3, 0.7)])[0].method == GC(0.3, 0.7)


@pytest.mark.parametrize("outside", [(0.9, 0.5), (0.5, 3.0), (0.5, 0.0)])
def test_what_comes_first_lies_within_what_is_swept(tmp_path, outside) -> None:
    with pytest.raises(DataError, match=r"0\.05, 0\.8.*0\.02, 2"):
        sweep(FakeRunner(tmp_path), ONE_SEED, trials=1, storage=f"{tmp_path}/sweep.log", initial=[outside])
    assert not list(tmp_path.iterdir())


def test_a_trial_is_the_mean_of_all_seeds(tmp_path) -> None:
    runner = FakeRunner(tmp_path)
    (trial,) = sweep(runner, SweepConfig("wake-word"), trials=1, storage=f"{tmp_path}/sweep.log", initial=[(0.3, 0.4)])
    assert [run.seed for run in runner.executed] == [0, 1, 2]
    assert trial.accuracy == pytest.approx(0.9 + 0.01)


def test_a_study_of_another_budget_begins_anew(tmp_path, monkeypatch) -> None:
    runner, where = FakeRunner(tmp_path), f"{tmp_path}/sweep.log"
    sweep(runner, ONE_SEED, trials=2, storage=where)
    task = TASKS["wake-word"]
    monkeypatch.setitem(TASKS, "wake-word", replace(task, lite=replace(task.lite, epochs=3)))
    assert len(sweep(runner, ONE_SEED, trials=1, storage=where)) == 1


@pytest.mark.parametrize("space", [(False, 2), (True, 0), (True, 9)])
def test_a_space_has_only_places_that_there_are(space) -> None:
    with pytest.raises(DataError, match="max_layers"):
        room.SearchSpace(*space)
