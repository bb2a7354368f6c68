"""Batches: the same seed gives the same samples and the same augmentation in every process; streams are an error."""

from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import penstock as ps
from helpers.small_task import task
from penstock.datasets.loading import fingerprint, loader, reproducible
from penstock.errors import DataError, PenstockError


class Augmented(Dataset):
    """Each access draws the sample again, from torch's own generator."""

    def __init__(self, shift: float = 0.0) -> None:
        self.targets, self.shift = torch.arange(24) % 3, shift

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.rand(6) + self.targets[i] + self.shift, int(self.targets[i])


# --- what makes data this data


def test_a_fingerprint_does_not_depend_on_what_an_augmentation_draws() -> None:
    data = Augmented()
    marks = set()
    for seed in range(3):
        torch.manual_seed(seed)
        marks |= {fingerprint(data), fingerprint(DataLoader(data, batch_size=4))}
    assert len(marks) == 1
    assert fingerprint(Augmented(shift=1.0)) not in marks


def test_a_fingerprint_draws_nothing() -> None:
    torch.manual_seed(5)
    undisturbed = torch.rand(3)
    torch.manual_seed(5)
    fingerprint(Augmented())
    assert torch.rand(3).equal(undisturbed)


def test_an_augmented_training_goes_on_in_its_folder(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    net = ps.gate(model, torch.zeros(1, 6), at="1")
    once = ps.FitConfig(epochs=1, folder=tmp_path, progress=False)
    torch.manual_seed(1)
    ps.fit(net, Augmented(), config=once)
    trained = [parameter.clone() for parameter in net.parameters()]
    torch.manual_seed(2)
    again = ps.gate(model, torch.zeros(1, 6), at="1")
    ps.fit(again, Augmented(), config=once)  # finished: nothing is trained again
    assert all(a.equal(b) for a, b in zip(again.parameters(), trained, strict=True))
    with pytest.raises(PenstockError):
        ps.fit(again, Augmented(shift=1.0), config=once)


# --- the last batch


@given(st.integers(2, 200), st.integers(1, 70), st.integers(1, 4))
@example(samples=130, batch_size=64, world=2)  # 65 for each process
@example(samples=129, batch_size=64, world=2)  # one of them is dealt out twice
@example(samples=129, batch_size=64, world=1)
@example(samples=65, batch_size=64, world=2)
def test_a_process_trains_with_no_last_batch_of_one(samples: int, batch_size: int, world: int) -> None:
    data = TensorDataset(torch.zeros(samples, 1), torch.zeros(samples))
    for rank in range(world):
        source = DataLoader(data, batch_size=batch_size, shuffle=True)
        sizes = [len(x) for x, _ in reproducible(source, 0, rank=rank, world=world, training=True)]
        share = -(-samples // world)
        assert sizes and (len(sizes) == 1 or batch_size == 1 or 1 not in sizes)
        assert share - sum(sizes) == (1 if share > batch_size > 1 == share % batch_size else 0)  # nothing else is lost


# --- processes that read


def seen(seed: int, epoch: int, noise: int) -> Tensor:
    """Return all of an epoch's inputs, read by two processes, whatever was drawn before."""
    torch.manual_seed(noise)
    source = DataLoader(Augmented(), batch_size=4, shuffle=True, num_workers=2)
    batches = reproducible(source, seed, rank=0, world=1, training=True)
    batches.sampler.set_epoch(epoch)
    return torch.cat([x for x, _ in batches])


def test_reading_processes_augment_by_seed_and_epoch_alone() -> None:
    first = seen(seed=0, epoch=1, noise=1)
    assert seen(seed=0, epoch=1, noise=2).equal(first)
    others = [seen(seed=0, epoch=2, noise=1), seen(seed=1, epoch=1, noise=1)]
    assert not any((other % 1).sum(1).sort().values.equal((first % 1).sum(1).sort().values) for other in others)


def test_a_broken_training_with_reading_processes_ends_like_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(folder: Path, noise: int) -> ps.GatedNetwork:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        net = ps.gate(model, torch.zeros(1, 6), at="1")
        torch.manual_seed(noise)
        source = DataLoader(Augmented(), batch_size=8, shuffle=True, num_workers=2)
        ps.fit(net, source, config=ps.FitConfig(epochs=2, folder=folder, progress=False))
        return net

    def broken(self) -> None:
        if self.current_epoch == 1:
            raise KeyError("a power cut")

    unbroken = trained(tmp_path / "uninterrupted", noise=1)
    with monkeypatch.context() as first:
        first.setattr("penstock.training.module.GatedLightningModule.on_train_epoch_start", broken)
        with pytest.raises(KeyError, match="a power cut"):
            trained(tmp_path / "broken", noise=2)
    again = trained(tmp_path / "broken", noise=3)
    assert all(a.equal(b) for a, b in zip(again.parameters(), unbroken.parameters(), strict=True))


# --- streams


class Stream(IterableDataset):
    """Samples that come one after the other, and have no numbers."""

    def __iter__(self):
        return iter((torch.full((6,), float(i)), i % 3) for i in range(12))


class LongStream(Stream):
    """The same, with a length."""

    def __len__(self) -> int:
        return 12


@pytest.mark.parametrize("data", [DataLoader(Stream(), 4), DataLoader(LongStream(), 4), LongStream()])
@pytest.mark.parametrize("part", ["train", "validation"])
@pytest.mark.parametrize("folder", [None, "run"])
def test_a_stream_cannot_be_trained_with(data, part: str, folder: str | None, tmp_path: Path) -> None:
    net = ps.gate(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.zeros(1, 6), at="1")
    pair = (torch.randn(12, 6), torch.arange(12) % 3)
    parts = (data, None) if part == "train" else (pair, data)
    with pytest.raises(DataError, match=r"IterableDataset \((Long)?Stream\)"):
        ps.fit(net, *parts, config=ps.FitConfig(epochs=1, folder=folder and tmp_path / folder, progress=False))


def test_a_stream_can_be_evaluated() -> None:
    net = ps.gate(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.zeros(1, 6), at="1")
    pair = (torch.arange(12.0)[:, None].expand(12, 6), torch.arange(12) % 3)
    assert ps.evaluate(net, DataLoader(Stream(), 4)).accuracy == ps.evaluate(net, pair).accuracy


# --- a pair of tensors


@given(st.integers(1, 50), st.integers(1, 20), st.booleans())
def test_batches_taken_at_once_are_those_taken_sample_by_sample(samples: int, batch_size: int, shuffle: bool) -> None:
    x, y = torch.arange(3.0 * samples).reshape(samples, 3), torch.arange(samples)
    order = [DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=shuffle)]
    order.append(loader((x, y), batch_size=batch_size, shuffle=shuffle))
    one_by_one, at_once = (list(reproducible(o, 3, rank=0, world=1, training=False)) for o in order)
    assert len(one_by_one) == len(at_once)
    for theirs, ours in zip(one_by_one, at_once, strict=True):
        assert theirs[0].equal(ours[0]) and theirs[1].equal(ours[1])
        assert ours[0].is_contiguous()


def test_a_batch_is_the_readers_own() -> None:
    """What is done to a batch in place is not done to the data."""
    x, y = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    for batch, _ in loader((x, y), batch_size=4):
        batch += 1
    assert not x.any()


def test_samplers_of_the_users_own_are_left_alone():
    x, y = task()
    subset = torch.utils.data.RandomSampler(range(len(x)), num_samples=50)
    source = DataLoader(TensorDataset(x, y), batch_size=10, sampler=subset)
    assert reproducible(source, 0, rank=0, world=1, training=True) is source
    with pytest.raises(DataError, match="several processes"):
        reproducible(source, 0, rank=0, world=2, training=True)


def test_labels_before_a_target_transform_are_not_taken_for_labels():
    class Transforming(TensorDataset):
        targets = (7, 8, 9)
        target_transform = staticmethod(lambda label: label - 7)

        def __getitem__(self, i):
            return self.tensors[0][i], self.target_transform(self.targets[i])

    data = Transforming(torch.zeros(3, 6), torch.zeros(3), torch.zeros(3))
    assert ps.class_counts(data, 4) == (1, 1, 1, 0)
