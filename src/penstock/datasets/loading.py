"""One way in for data: a DataLoader, a Dataset, or a pair of tensors (x, y) all become batches of (x, y)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
)

from penstock.errors import DataError

Data: TypeAlias = DataLoader[Any] | Dataset[Any] | tuple[Tensor, Tensor]


def loader(data: Data, *, batch_size: int, shuffle: bool = False, workers: int = 0) -> DataLoader[Any]:
    """Return a DataLoader, read by so many processes of its own; one that is given is returned as it is."""
    if isinstance(data, DataLoader):
        return data
    if isinstance(data, (tuple, list)):
        data = _pair(data)
    if not isinstance(data, Dataset) or not hasattr(data, "__len__"):
        raise DataError(
            f"data of type {type(data).__name__} came; give a DataLoader, a Dataset with a length, or a pair of "
            "tensors (x, y)."
        )
    if shuffle:
        _check_numbered(data)
    if not len(data):
        raise DataError("the data set is empty.")
    if batch_size < 1:
        raise DataError(f"batch_size = {batch_size} is not possible: a batch has at least one sample.")
    collate = _as_it_is if isinstance(data, Pair) else None
    return DataLoader(data, batch_size=batch_size, shuffle=shuffle, num_workers=workers, collate_fn=collate)


class Pair(TensorDataset):
    """A pair of tensors (x, y), whose batches are taken at once: sample by sample takes five times as long."""

    def __getitems__(self, numbers: list[int]) -> tuple[Tensor, ...]:
        """Return a batch; DataLoader asks for it where it can."""
        return tuple(part[numbers] for part in self.tensors)


def _as_it_is(batch: Any) -> Any:
    return batch


class EpochOrder(Sampler[int]):
    """An order of samples that depends on seed and epoch alone, dealt out in turn to all processes.

    So any epoch can be drawn again, and n processes with batches of b see together what one sees with batches of n · b.

    Attributes:
        workers: what a loader seeds its reading processes with, which augment; by seed and epoch too.
    """

    def __init__(self, samples: int, *, shuffle: bool, seed: int, rank: int = 0, world: int = 1, even: bool = True):
        self.samples, self.shuffle, self.seed = samples, shuffle, seed
        self.rank, self.world, self.even = rank, world, even
        self.workers = torch.Generator()
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; Lightning does."""
        self.epoch = epoch
        self.workers.manual_seed(hash((self.seed, epoch, self.rank)) % 2**63)

    def __iter__(self) -> Iterator[int]:
        draw = torch.manual_seed(
            hash((self.seed, self.epoch)) % 2**63
        )  # the global one: augmentation draws from it too
        order = torch.randperm(self.samples, generator=draw) if self.shuffle else torch.arange(self.samples)
        if self.even and self.world > 1:  # each process must take as many steps as the others
            order = torch.cat([order, order[: -self.samples % self.world]])
        yield from order[self.rank :: self.world].tolist()

    def __len__(self) -> int:
        dealt = self.samples + (-self.samples % self.world if self.even else 0)
        return len(range(self.rank, dealt, self.world))


class EpochLoader(DataLoader[Any]):
    """A loader that starts to read with its first batch: Lightning asks for it before it has said which epoch it is."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        yield from super().__iter__()


def reproducible(source: DataLoader[Any], seed: int, *, rank: int, world: int, training: bool) -> DataLoader[Any]:
    """Return a loader in `EpochOrder`, if its own order is one that DataLoader makes by itself."""
    _check_numbered(source.dataset)
    if source.batch_size is None or not _is_ordinary(source):
        if world > 1:
            raise DataError(
                "a DataLoader with a sampler of its own came, which several processes cannot share: give the data set."
            )
        return source
    shuffled, samples = isinstance(source.sampler, RandomSampler), len(source.dataset)  # type: ignore[arg-type]
    order = EpochOrder(samples, shuffle=shuffled, seed=seed, rank=rank, world=world, even=training)
    alone = training and len(order) > source.batch_size and len(order) % source.batch_size == 1  # batch norm needs two
    return EpochLoader(
        source.dataset,
        batch_size=source.batch_size,
        sampler=order,
        num_workers=source.num_workers,
        collate_fn=source.collate_fn,
        pin_memory=source.pin_memory,
        drop_last=source.drop_last or alone,
        worker_init_fn=source.worker_init_fn,
        generator=order.workers,
        persistent_workers=source.persistent_workers,
    )


def batches(data: Data, *, batch_size: int, progress: str | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (x, y), with a progress bar named ``progress`` when the work is long and somebody looks."""
    source: Iterable[Any] = loader(data, batch_size=batch_size)
    if progress is not None:
        from rich.console import Console
        from rich.progress import track

        source = track(source, description=progress, transient=True, console=Console(stderr=True))
    for batch in source:
        yield pair_of(batch)


def pair_of(batch: Any) -> tuple[Tensor, Tensor]:
    """Return a batch as (x, y)."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        came = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise DataError(f"a batch of {came} came; a data set yields pairs (x, y).")
    x, y = batch
    return x, torch.as_tensor(y)


def cheap_labels(data: Data) -> Tensor | None:
    """Return all labels of a data set if that takes no reading of its inputs."""
    if isinstance(data, DataLoader) and not _is_ordinary(data):
        return None
    source = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(source, (tuple, list)):
        return _pair(source).tensors[1]
    if isinstance(source, TensorDataset) and len(source.tensors) == 2:
        return source.tensors[1]
    targets = getattr(source, "targets", None)  # as torchvision's data sets have it, before their target_transform
    return None if targets is None or getattr(source, "target_transform", None) else torch.as_tensor(targets)


def labels(data: Data) -> Tensor:
    """Return all labels of a data set, reading it where there is no other way."""
    known = cheap_labels(data)
    return torch.cat([y for _, y in batches(data, batch_size=1024)]) if known is None else known


def fingerprint(data: Data) -> str:
    """Return a few characters that differ when the data does: its length, its labels if cheap, its first sample."""
    source = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(source, (tuple, list)):
        source = _pair(source)
    _check_numbered(source)
    known = cheap_labels(data)
    with torch.random.fork_rng(devices=()):  # an augmentation is to draw the same each time
        torch.default_generator.manual_seed(0)
        x, y = source[0]
    parts = (len(source), None if known is None else known.tolist(), torch.as_tensor(x).tolist(), int(y))  # type: ignore[arg-type]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def class_counts(data: Data, classes: int) -> tuple[int, ...]:
    """Count the samples of each class, as `Objective` wants them."""
    return tuple(torch.bincount(labels(data), minlength=classes).tolist())


def _is_ordinary(source: DataLoader[Any]) -> bool:
    """Say whether a loader goes through all of its data set, in order or shuffled, as DataLoader does by itself."""
    sampler = source.sampler
    ordinary = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    return ordinary and len(sampler) == len(source.dataset)  # type: ignore[arg-type]


def _check_numbered(data: Dataset[Any]) -> None:
    if isinstance(data, IterableDataset):
        raise DataError(
            f"an IterableDataset ({type(data).__name__}) came: its samples have no numbers, so no epoch could be drawn "
            "again. Give a Dataset with __len__ and __getitem__, or read it into a pair of tensors (x, y)."
        )


def _pair(data: Any) -> Pair:
    if len(data) != 2 or not all(isinstance(part, Tensor) for part in data):
        raise DataError(f"{len(data)} parts came where a pair of tensors (x, y) is wanted.")
    if len(data[0]) != len(data[1]):
        raise DataError(f"{len(data[0])} samples came with {len(data[1])} labels: give one label for each sample.")
    return Pair(*data)
