"""The comparison as a whole: nothing from test data but what is reported, and a killed run resumes."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

from helpers.comparison_task import PARTS, config, draw, network
from penstock.comparison import contestants
from penstock.comparison.compare import compare
from penstock.comparison.config import GATE_ONLY, NAMES, TWO_NETWORKS, YOURS, CompareConfig
from penstock.comparison.points import choose_threshold, measured
from penstock.comparison.run import Run
from penstock.errors import CutError, DataError, LabelError, LayerError, StorageError, TrainingError

TRAIN, VALIDATION, TEST = PARTS
pytestmark = pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning")


@pytest.fixture
def fits(monkeypatch):
    """Count trainings; ``kill_at`` is how many run before one is killed."""
    done, fit = [], contestants.fit

    def counted(net, *data, **choices):
        if len(done) == counted.kill_at:
            raise KeyboardInterrupt
        done.append(net)
        return fit(net, *data, **choices)

    counted.kill_at, counted.done = None, done
    monkeypatch.setattr(contestants, "fit", counted)
    return counted


def test_every_contestant_learns_the_task_and_is_reported_at_every_loss(finished):
    comparison, _ = finished
    assert comparison.contestants == NAMES and comparison.seeds == 2 and comparison.samples == len(TEST[1])
    assert comparison.positives == int((TEST[1] > 0).sum())
    for name in NAMES:
        for allowed in comparison.lost:
            points = comparison.of(name, allowed)
            assert [point.seed for point in points] == [0, 1]
            assert all(point.lost < allowed + 0.05 and point.accuracy_open > 0.6 for point in points)
    assert comparison.untimed == dict.fromkeys(NAMES, "exported by no one") and not comparison.left_out
    assert all(cost.seconds is None for point in comparison.points for cost in point.costs)
    assert comparison.verdict.endswith(".")


def test_it_is_json_that_a_strict_parser_reads(finished, tmp_path):
    comparison, _ = finished
    comparison.save(tmp_path / "c.json")
    read = json.loads((tmp_path / "c.json").read_text(), parse_constant=pytest.fail)
    assert read == json.loads(json.dumps(comparison.to_json())) and read["verdict"] == comparison.verdict


def test_a_killed_run_resumes_and_ends_with_the_same(finished, fits, tmp_path):
    fits.kill_at = 3  # after yours, gated and gate only
    with pytest.raises(KeyboardInterrupt):
        compare(network, *PARTS, config=config(tmp_path))
    names = {path.name for path in (tmp_path / "seed-0").iterdir()}
    assert names == {"yours.safetensors", "yours.json", "gated.json", "gate only.json"}, "nothing half written"
    fits.kill_at = None
    again = compare(network, *PARTS, config=config(tmp_path))
    assert len(fits.done) == 6, "what was finished is not trained again"
    assert again.points == tuple(point for point in finished[0].points if point.seed == 0)


def test_a_finished_run_trains_nothing_again_whatever_is_reported(finished, fits):
    comparison, folder = finished
    fits.kill_at = 0
    assert compare(network, *PARTS, config=config(folder, seeds=2)) == comparison
    other = compare(network, *PARTS, config=config(folder, only=(GATE_ONLY,), lost=(0.1,)))
    assert (other.contestants, other.lost, other.seeds) == ((YOURS, GATE_ONLY), (0.1,), 1)


def test_a_folder_of_another_comparison_is_refused(finished, fits):
    _, folder = finished
    fits.kill_at = 0
    with pytest.raises(
        TrainingError, match=r"holds another run, which differs in keep, epochs\. Choose another folder"
    ):
        compare(network, *PARTS, config=config(folder, keep=0.5, epochs=3))
    with pytest.raises(TrainingError, match="differs in data"):
        compare(network, TRAIN, draw(300, 9), TEST, config=config(folder))
    with pytest.raises(TrainingError, match="differs in network"):
        compare(lambda: nn.Sequential(network(), nn.ReLU()), *PARTS, config=config(folder))


def test_a_damaged_file_says_what_to_do(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / "seed-0" / "yours.json").write_text("{")
    with pytest.raises(StorageError, match=r"cannot resume: .*yours.json cannot be read .*Delete it to train it again"):
        compare(network, *PARTS, config=config(tmp_path, only=()))


def test_thresholds_do_not_depend_on_test_data(finished):
    comparison, _ = finished
    x, y = TEST
    other = compare(network, TRAIN, VALIDATION, (x.flip(0), (y + 1) % 3), config=config(only=(GATE_ONLY,)))
    for allowed in comparison.lost:
        for name in (YOURS, GATE_ONLY):
            (found,), (before, _) = other.of(name, allowed), comparison.of(name, allowed)
            assert found.threshold == before.threshold and found.accuracy != before.accuracy


def test_on_validation_data_no_more_is_lost_than_allowed(finished):
    _, folder = finished
    for name in NAMES:
        record = Run(folder / "seed-0", network, {}, config(), 0).record(name)
        found = []
        for allowed in (0.005, 0.01, 0.02, 0.05):
            found.append(measured(record.validation, record.costs, choose_threshold(record.validation, allowed)))
            assert found[-1]["lost"] <= allowed
        stopped = [one["early_stopping"] for one in found]
        assert stopped == sorted(stopped), "a lower permitted loss never stops more"


def test_the_time_of_two_networks_is_that_of_both(finished, monkeypatch, tmp_path):
    _, folder = finished
    run = Run(tmp_path, network, dict(zip(("train", "validation", "test"), PARTS, strict=True)), config(), 0)
    records = {name: Run(folder / "seed-0", network, {}, config(), 0).record(name) for name in (YOURS, TWO_NETWORKS)}
    seconds, untimed = run.seconds(records)
    assert seconds == {} and untimed.keys() == records.keys()
    records = {name: replace(record, not_exported=None) for name, record in records.items()}
    monkeypatch.setattr(
        "penstock.comparison.run.stage_seconds", lambda folders, sample: {YOURS: [2.0], TWO_NETWORKS: [1.0]}
    )
    assert run.seconds(records) == ({YOURS: [2.0], TWO_NETWORKS: [1.0, 2.0]}, {})
    monkeypatch.setattr("penstock.comparison.run.stage_seconds", pytest.fail)
    assert run.seconds(records)[0] == {YOURS: [2.0], TWO_NETWORKS: [1.0, 2.0]}, "kept, not measured again"
    records[YOURS] = replace(records[YOURS], not_exported="no graph")
    assert run.seconds(records) == ({}, {YOURS: "no graph", TWO_NETWORKS: "no graph"})


def test_a_network_itself_is_taken_as_the_start_of_every_seed():
    model = network()
    before = [weight.clone() for weight in model.parameters()]
    comparison = compare(model, *PARTS, config=config(only=(), epochs=1))
    assert comparison.contestants == (YOURS,)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)), "it is not changed"


def test_what_cannot_be_built_is_left_out_with_the_reason():
    def tokens():
        return nn.Sequential(nn.Embedding(9, 8), nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 2))

    x = torch.randint(0, 9, (200, 6), generator=torch.Generator().manual_seed(0))
    data = x, (x[:, 0] > 4).long()
    comparison = compare(tokens, data, data, data, config=config(at="2", only=(TWO_NETWORKS,)))
    assert comparison.contestants == (YOURS,)
    assert "no small network for inputs of torch.int64" in comparison.left_out[TWO_NETWORKS]
    assert f"{TWO_NETWORKS} is left out: there is no small network" in str(comparison)


@pytest.mark.parametrize(
    ("choices", "error", "text"),
    [
        ({"only": ("gated", "one network")}, DataError, "among yours, gated, .*, got one network"),
        ({"lost": (0.02, 1.0)}, DataError, "between 0 and 1, such as 0.02 for 2 %, got .*1.0"),
        ({"lost": ()}, DataError, r"between 0 and 1, .* got \(\)"),
        ({"seeds": 0}, DataError, "seeds must be at least 1, got 0"),
        ({"epochs": 0}, TrainingError, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, TrainingError, "batch_size must be at least 1, got 0"),
        ({"at": 0}, CutError, "expected one place for one gate, such as at=0.4, got at=0: 0"),
        ({"at": 2}, CutError, "expected one place for one gate, such as at=0.4, got at=2: 2"),
        ({"at": "layer9"}, CutError, "layer9"),
        ({"keep": "few"}, LayerError, "keep must be"),
        ({"background": 3}, LabelError, "background"),
    ],
)
def test_what_is_asked_for_is_checked_before_anything_is_trained(fits, choices, error, text):
    fits.kill_at = 0
    with pytest.raises(error, match=text):
        compare(network, *PARTS, config=config(**choices))


def test_a_split_without_positives_or_negatives_is_named(fits):
    fits.kill_at = 0
    x, y = VALIDATION
    with pytest.raises(LabelError, match="validation: the data has no positives among its"):
        compare(network, TRAIN, (x[y == 0], y[y == 0]), TEST, config=config())
    with pytest.raises(LabelError, match="test: the data has no negatives among its"):
        compare(network, TRAIN, VALIDATION, (x[y > 0], y[y > 0]), config=config())
    with pytest.raises(LabelError, match="test: labels must be one of the 3 classes"):
        compare(network, TRAIN, VALIDATION, (x, y + 1), config=config())


def test_the_configuration_trains_all_by_default():
    assert CompareConfig().contestants == NAMES
    assert CompareConfig(only=("two networks", "gated")).contestants == (YOURS, "gated", TWO_NETWORKS)
