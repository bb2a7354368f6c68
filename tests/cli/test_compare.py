"""`penstock compare`, from data to a picture, and what it refuses."""

import json

import pytest

MINE = ("compare", "-m", "mine:network", "-d", "mine:data")


@pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning")
def test_it_trains_measures_and_resumes(home, typed):
    run = (
        *MINE,
        "--at",
        "1",
        "--epochs",
        "6",
        "--batch-size",
        "64",
        "--seeds",
        "1",
        "--only",
        "gate-only",
        "--folder",
        "compared",
    )
    shown = typed(*run, "--lost", "0.02", "--lost", "0.05,0.1", "--plots", "plots", "-o", "c.json", columns=80)
    assert "seed 1 of 1: gate only" in shown.err and "seed 1 of 1: time of the stages" in shown.err
    table = shown.out[shown.out.index("On 500 test samples") :]
    assert max(map(len, table.splitlines())) <= 80 and "µs" in table and "Written: plots/comparison.png" in table
    assert (home / "plots" / "comparison.png").exists()
    written = json.loads((home / "c.json").read_text())
    assert written["verdict"] in " ".join(table.split())
    points = {(point["contestant"], point["allowed"]): point for point in written["points"]}
    assert points.keys() == {(name, allowed) for name in ("yours", "gate only") for allowed in (0.02, 0.05, 0.1)}
    assert all(point["accuracy"] > 0.7 for point in points.values())
    yours, gated = points["yours", 0.02]["costs"][0], points["gate only", 0.02]["costs"][0]
    assert yours["macs"] == 6 * 12 + 12 * 8 + 8 * 3 and gated["macs"] != yours["macs"]
    assert 0 < yours["seconds"] < gated["seconds"], "so small a network is not worth a gate"
    again = typed(*run, "--lost", "0.02,0.05,0.1", "--json")
    assert json.loads(again.out) == written and "Epoch" not in again.err, "nothing is trained or measured again"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ("--only", "gated,neither"),
            "expected contestants among yours, gated, gate only, early exit, two networks, got",
        ),
        (("--lost", "1.5"), "DataError: expected shares of positives lost between 0 and 1"),
        (("--lost", "few"), "--lost few: expected shares such as 0.01,0.02"),
        (("--at", "layer1"), "CutError: "),
        (("--keep", "few"), "LayerError: keep must be"),
        (("--seeds", "0"), "seeds must be at least 1, got 0"),
        (("--out", "."), "StorageError: . is a folder"),
    ],
)
def test_a_wrong_option_is_an_error(error_of, options, text):
    assert text in error_of(*MINE, *options, "--json")


def test_data_without_validation_is_an_error(error_of, home):
    (home / "unsplit.py").write_text("from mine import draw\ndata = {'train': draw(0, 50), 'test': draw(1, 50)}\n")
    error = error_of("compare", "-m", "mine:network", "-d", "unsplit:data")
    assert "expected data with train, validation and test, got train and test. Thresholds are chosen on" in error
