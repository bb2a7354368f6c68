"""The experiments of the paper as lists of runs."""

import pytest

from penstock.errors import DataError
from reproduction.experiments.paper_experiments import EXPERIMENTS, PUBLIC_TASKS, evenly_spaced_blocks


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_name_known_tasks(name, tmp_path) -> None:
    experiment = EXPERIMENTS[name]
    assert set(experiment.tasks) <= set(PUBLIC_TASKS)
    every = experiment.runs("lite", results=tmp_path)
    assert len({run.key for run in every}) == len(set(every)) >= 3
    with pytest.raises(DataError, match=r"nowhere.* fashion-mnist"):
        experiment.runs("lite", ["nowhere"], results=tmp_path)
    with pytest.raises(DataError, match=r"'quick'.* paper, lite"):
        experiment.runs("quick", results=tmp_path)
    keys = {profile: {run.key for run in experiment.runs(profile, results=tmp_path)} for profile in ("paper", "lite")}
    assert len(keys["paper"]) >= len(keys["lite"]) * 10 / 3, "ten seeds, and no fewer points"


def test_several_layers_are_spread_evenly() -> None:
    for count in range(2, 9):
        blocks = evenly_spaced_blocks(count)
        assert len(set(blocks)) == count and blocks[-1] == 8 and blocks[0] >= 1
