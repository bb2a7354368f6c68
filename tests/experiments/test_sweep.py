"""The rule of choice, and that a study goes on in its storage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError
from penstock.experiments import sweep as room
from penstock.experiments.methods import GC
from penstock.experiments.sweep import Trial, best_accuracy, best_trade_off, pareto, sweep

shares = st.floats(0, 1)
trials = st.lists(st.builds(Trial, st.just(GC(0.5, 0.5)), shares, shares, shares), min_size=1, max_size=12)


@given(trials)
def test_the_front_is_what_nobody_beats(some) -> None:
    front = pareto(some)
    assert front
    for one in some:
        beaten = any(all(b >= a for a, b in zip(one.aims, o.aims, strict=True)) and o.aims != one.aims for o in some)
        assert (one in front) == (not beaten)


@given(trials)
def test_the_most_accurate_that_fulfils_all_is_chosen(some) -> None:
    good = [t for t in some if t.early_stopping >= 0.3 and t.activation_sparsity >= 0.4]
    chosen = best_accuracy(some, early_stopping=0.3, sparsity=0.4)
    if good:
        assert chosen.accuracy == max(t.accuracy for t in good)
    good = [t for t in some if t.accuracy >= 0.5 and t.activation_sparsity >= 0.4]
    if good:
        chosen = best_trade_off(some, accuracy=0.5, sparsity=0.4)
        assert chosen.early_stopping == max(t.early_stopping for t in good)


def test_where_nothing_fulfils_all_the_nearest_is_chosen() -> None:
    near, far = Trial(GC(0.1, 0.1), 0.9, 0.8, 0.39), Trial(GC(0.2, 0.1), 0.95, 0.5, 0.1)
    assert best_accuracy([far, near]) is near
    with pytest.raises(DataError, match="the study has no finished trial yet"):
        best_accuracy([])


class FakeLaboratory:
    def perform(self, run):
        point = {"accuracy": 1 - run.method.beta / 4, "early_stopping": run.method.alpha}
        return {"validation": {"points": {"lost 0.01": point}}, "activation_sparsity": run.method.beta / 2}


@pytest.mark.filterwarnings("ignore::Warning")  # of what is experimental in optuna
@pytest.mark.parametrize("storage", ["{}/sweep.log", "sqlite:///{}/sweep.db"])
def test_a_study_goes_on_in_its_storage(tmp_path, storage) -> None:
    where = storage.format(tmp_path)
    first = sweep(FakeLaboratory(), "tones", trials=3, storage=where)
    more = sweep(FakeLaboratory(), "tones", trials=2, storage=where)
    assert more[:3] == first and len(more) == 5
    assert all(trial.accuracy == 1 - trial.method.beta / 4 for trial in more)
    layers = sweep(FakeLaboratory(), "tones", trials=4, storage=where, space=room.Space(places=True, most_layers=3))
    assert len(layers) == 4 and all(1 <= len(trial.method.blocks) <= 3 for trial in layers)


def test_a_storage_is_a_file_or_a_database() -> None:
    with pytest.raises(DataError, match=r"storage 'sweep' is not understood: give a file that ends in .log"):
        sweep(FakeLaboratory(), "tones", trials=1, storage="sweep")
