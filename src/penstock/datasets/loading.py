"""The one way in for data: a DataLoader, a Dataset, or a pair of tensors (x, y) all become batches of (x, y)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
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
    default_collate,
)

from penstock.datasets.progress import tracked
from penstock.errors import DataError

Data: TypeAlias = DataLoader[Any] | Dataset[Any] | tuple[Tensor, Tensor]

PICTURES = (
    "Pictures become tensors with ImageConfig(...).preprocess, or if penstock.datasets.image_folder loads their folder."
)


def loader(data: Data, *, batch_size: int, shuffle: bool = False, workers: int = 0) -> DataLoader[Any]:
    """Return a DataLoader with this many worker processes; a DataLoader is returned unchanged."""
    if isinstance(data, DataLoader):
        return data
    if isinstance(data, (tuple, list)):
        data = _pair(data)
    if not isinstance(data, Dataset) or not hasattr(data, "__len__"):
        raise DataError(
            f"expected a DataLoader, a Dataset with a length, or a pair of tensors (x, y), got {type(data).__name__}."
        )
    if shuffle:
        _check_indexable(data)
    if not len(data):
        raise DataError("the data set is empty.")
    if batch_size < 1:
        raise DataError(f"batch_size must be at least 1, got {batch_size}.")
    collate = tuple if isinstance(data, Pair) else _collate  # a pair gives whole batches: nothing to collate
    return DataLoader(data, batch_size=batch_size, shuffle=shuffle, num_workers=workers, collate_fn=collate)


class Pair(TensorDataset):
    """A pair of tensors (x, y), indexed a batch at a time: sample by sample takes five times as long."""

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, ...]:
        """Return a batch; DataLoader calls this if it exists."""
        return tuple(part[indices] for part in self.tensors)


def _collate(samples: list[Any]) -> Any:
    """Make a batch as torch does, but explain which samples cannot become one."""
    try:
        return default_collate(samples)
    except (TypeError, RuntimeError) as error:
        kinds = list(dict.fromkeys(map(_kind, samples)))
        raise DataError(
            f"expected samples (x, y), tensors x of one shape and numbers y, got {' and '.join(kinds[:2])}. {PICTURES}"
        ) from error


def _kind(value: Any) -> str:
    """Return the type and shape of a sample or of its parts.

    >>> _kind((torch.zeros(3, 4), 1))
    '(Tensor (3, 4), int)'
    """
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_kind, value))})"
    shape = getattr(value, "shape", getattr(value, "size", ()))  # size: of a Pillow image
    return f"{type(value).__name__} {tuple(shape)}" if shape else type(value).__name__


class EpochOrder(Sampler[int]):
    """An order of samples that depends only on seed and epoch, distributed in turn over all processes.

    So any epoch can be repeated, and n processes with batches of b together see what one sees with batches of n · b.

    Attributes:
        workers: generator that seeds the worker processes, which augment; it depends on seed and epoch too.
    """

    def __init__(self, samples: int, *, shuffle: bool, seed: int, rank: int = 0, world: int = 1, even: bool = True):
        self.samples, self.shuffle, self.seed = samples, shuffle, seed
        self.rank, self.world, self.even = rank, world, even
        self.workers = torch.Generator()
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch; Lightning calls this."""
        self.epoch = epoch
        self.workers.manual_seed(hash((self.seed, epoch, self.rank)) % 2**63)

    def __iter__(self) -> Iterator[int]:
        generator = torch.manual_seed(hash((self.seed, self.epoch)) % 2**63)  # the global one: augmentation uses it too
        order = torch.randperm(self.samples, generator=generator) if self.shuffle else torch.arange(self.samples)
        if self.even and self.world > 1:  # all processes must take the same number of steps
            order = torch.cat([order, order[: -self.samples % self.world]])
        yield from order[self.rank :: self.world].tolist()

    def __len__(self) -> int:
        total = self.samples + (-self.samples % self.world if self.even else 0)
        return len(range(self.rank, total, self.world))


class EpochLoader(DataLoader[Any]):
    """A loader that starts with its first batch: Lightning calls ``iter`` before it sets the epoch."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        yield from super().__iter__()


def reproducible(source: DataLoader[Any], seed: int, *, rank: int, world: int, training: bool) -> DataLoader[Any]:
    """Return a loader in `EpochOrder`, unless the loader has a sampler of its own."""
    _check_indexable(source.dataset)
    if source.batch_size is None or not _has_default_sampler(source):
        if world > 1:
            raise DataError(
                "a DataLoader with its own sampler cannot be shared by several processes: pass the Dataset instead."
            )
        return source
    shuffled, samples = isinstance(source.sampler, RandomSampler), len(source.dataset)  # type: ignore[arg-type]
    order = EpochOrder(samples, shuffle=shuffled, seed=seed, rank=rank, world=world, even=training)
    drop_single = (
        training and len(order) > source.batch_size and len(order) % source.batch_size == 1
    )  # batch norm needs 2
    return EpochLoader(
        source.dataset,
        batch_size=source.batch_size,
        sampler=order,
        num_workers=source.num_workers,
        collate_fn=_collate if source.collate_fn is default_collate else source.collate_fn,
        pin_memory=source.pin_memory,
        drop_last=source.drop_last or drop_single,
        worker_init_fn=source.worker_init_fn,
        generator=order.workers,
        persistent_workers=source.persistent_workers,
    )


def batches(data: Data, *, batch_size: int, progress: str | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches (x, y); ``progress`` is the title of a progress bar."""
    source: Iterable[Any] = loader(data, batch_size=batch_size)
    if progress is not None:
        source = tracked(source, progress)
    for batch in source:
        yield pair_of(batch)


def pair_of(batch: Any) -> tuple[Tensor, Tensor]:
    """Return a batch as (x, y)."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        kind = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise DataError(f"expected batches (x, y), got {kind}.")
    x, y = batch
    if not isinstance(x, Tensor):
        raise DataError(f"expected batches (x, y) with a tensor x, got {type(x).__name__}. {PICTURES}")
    return x, torch.as_tensor(y)


def cheap_labels(data: Data) -> Tensor | None:
    """Return all labels of a data set if they are known without reading its inputs, else None."""
    if isinstance(data, DataLoader) and not _has_default_sampler(data):
        return None
    source = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(source, (tuple, list)):
        return _pair(source).tensors[1]
    if isinstance(source, TensorDataset) and len(source.tensors) == 2:
        return source.tensors[1]
    targets = getattr(source, "targets", None)  # as in torchvision, before target_transform
    return None if targets is None or getattr(source, "target_transform", None) else torch.as_tensor(targets)


def labels(data: Data) -> Tensor:
    """Return all labels of a data set, reading it if necessary."""
    known = cheap_labels(data)
    return torch.cat([y for _, y in batches(data, batch_size=1024)]) if known is None else known


def fingerprint(data: Data) -> str:
    """Return a short hash of the data: its length, its labels if cheap, its first sample."""
    source = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(source, (tuple, list)):
        source = _pair(source)
    _check_indexable(source)
    known = cheap_labels(data)
    with torch.random.fork_rng(devices=()):  # the same augmentation each time
        torch.default_generator.manual_seed(0)
        x, y = source[0]
    all_labels = None if known is None else known.tolist()
    values = x.tolist() if isinstance(x, Tensor) else np.asarray(x).tolist()  # as_tensor takes no Pillow image
    parts = (len(source), all_labels, values, int(y))  # type: ignore[arg-type]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def class_counts(data: Data, classes: int) -> tuple[int, ...]:
    """Count the samples of each class, for `Objective`."""
    return tuple(torch.bincount(labels(data), minlength=classes).tolist())


def _has_default_sampler(source: DataLoader[Any]) -> bool:
    """Return whether a loader covers its whole data set, in order or shuffled, as DataLoader does by default."""
    sampler = source.sampler
    default = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    return default and len(sampler) == len(source.dataset)  # type: ignore[arg-type]


def _check_indexable(data: Dataset[Any]) -> None:
    if isinstance(data, IterableDataset):
        raise DataError(
            f"expected a Dataset with __len__ and __getitem__ or a pair of tensors (x, y), got an IterableDataset "
            f"({type(data).__name__}): its epochs cannot be reproduced."
        )


def _pair(data: Any) -> Pair:
    if len(data) != 2 or not all(isinstance(part, Tensor) for part in data):
        raise DataError(f"expected a pair of tensors (x, y), got {len(data)} parts.")
    if len(data[0]) != len(data[1]):
        raise DataError(f"expected one label per sample, got {len(data[1])} labels for {len(data[0])} samples.")
    return Pair(*data)
