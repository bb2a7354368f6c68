"""The tasks of the experiments: data sets with their networks, in two profiles.

``paper`` is the paper's own budget (section 4): batch 512, 200 epochs, Adam at a fixed rate of 0.01, 10 repeats; on
ImageNet 1536, 100 and 0.006. ``lite`` takes minutes per run on one core: 24 epochs with a one-cycle schedule, 3
repeats, a subset of the training data, and masks that are sampled during training. After 200 epochs on all of the data
the plain network has memorised it, which is where the paper compares; 24 epochs on a subset end there too, a few epochs
on all of the data do not. Both profiles use the same code, and measure on all validation and test data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from penstock.datasets.splits import Splits, stratified_split
from penstock.errors import DataError
from penstock.models import resnet8, resnet8_1d
from penstock.training.optimizer import OptimizerConfig, Schedule
from reproduction.datasets.balance import Balance, Whole
from reproduction.datasets.cifar10 import cifar10
from reproduction.datasets.fashion_mnist import fashion_mnist
from reproduction.datasets.hey_snips import hey_snips
from reproduction.datasets.imagenet import imagenet
from reproduction.datasets.speech_commands import KeywordTask, WakeWord, Words, speech_commands
from reproduction.experiments.methods import Masks
from reproduction.models.inception import inception8_1d
from reproduction.models.resnext import resnext101_64x4d

VALIDATION_SHARE = 0.1
"""Of the training data, where a data set has no validation part of its own."""


@dataclass(frozen=True)
class Rates:
    """Learning rates of a training from scratch, as in `OptimizerConfig`; the fields are those of the result files."""

    rate: float = 0.01
    schedule: Schedule = "one-cycle"
    mask_rate: float = 0.3

    def optimizer(self) -> OptimizerConfig:
        """Return the optimizer of `fit`."""
        return OptimizerConfig(self.rate, self.schedule, self.mask_rate, network_rate=1.0)


@dataclass(frozen=True)
class Budget:
    """Size and length of a training.

    Attributes:
        width: channels after the first block.
        epochs, batch_size: as in `fit`.
        optimizer: its rates.
        seeds: one run per seed.
        masks: how masks are trained.
        train_per_word: audio: training positives per word; None for all.
        train_samples: images: training samples, stratified by class; None for all.
    """

    width: int
    epochs: int
    batch_size: int
    optimizer: Rates
    seeds: tuple[int, ...]
    masks: Masks = Masks()
    train_per_word: int | None = None
    train_samples: int | None = None


PROFILES = ("paper", "lite")
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Task:
    """A data set with its network.

    Attributes:
        name: as the command line and the result files have it.
        title: for people.
        network: the paper's name for the architecture.
        read: reads the data from a folder (None: the default location), given the budget.
        model: builds the network from input channels, classes and width.
        paper, lite: the two budgets.
        positive_share: share of positives that accuracies are weighted to; None for the data's own. The audio sets are
            trained at 1:9 and measured on all clips, weighted to 1:9: the same mean, from more positives.
        same_data_as: a task with the same data folder.
    """

    name: str
    title: str
    network: str
    read: Callable[[Path | None, Budget], Splits]
    model: Callable[[int, int, int], nn.Module]
    paper: Budget
    lite: Budget
    positive_share: float | None = None
    same_data_as: str = ""

    def budget(self, profile: str) -> Budget:
        """Return the budget of a profile."""
        if profile not in PROFILES:
            raise DataError(f"unknown profile {profile!r}: choose from {', '.join(PROFILES)}.")
        return self.paper if profile == "paper" else self.lite

    def data(self, folder: Path | None, profile: str) -> Splits:
        """Read the data, with a validation split and as many training samples as the budget allows."""
        budget = self.budget(profile)
        data = with_validation(self.read(folder, budget), VALIDATION_SHARE, seed=0)
        if budget.train_samples is None:
            return data
        assert isinstance(data.train, tuple)
        x, y = data.train
        return replace(data, train=stratified_split(x, y, budget.train_samples / len(y), seed=0)[1])


def with_validation(data: Splits, share: float, seed: int = 0) -> Splits:
    """Move a share of each class from train to validation; return the data set unchanged if it has a validation split.

    Raises:
        DataError: if train is not a pair of tensors, or a class is too small.
    """
    if data.validation is not None:
        return data
    if not isinstance(data.train, tuple):
        raise DataError(f"expected a pair of tensors to split, got a {type(data.train).__name__}.")
    train, validation = stratified_split(*data.train, share, seed)
    return replace(data, train=train, validation=validation)


def _clips(task: KeywordTask) -> Callable[[Path | None, Budget], Splits]:
    def read(folder: Path | None, budget: Budget) -> Splits:
        balance = Balance(train_positives_per_word=budget.train_per_word, held_out=Whole())
        return speech_commands(folder, task=task, balance=balance)

    return read


def _paper(width: int = 16, epochs: int = 200, batch_size: int = 512, rate: float = 0.01) -> Budget:
    return Budget(width, epochs, batch_size, Rates(rate, "constant", mask_rate=1.0), tuple(range(10)))


def _lite(width: int, epochs: int = 24, batch_size: int = 128, **part: int) -> Budget:
    return Budget(width, epochs, batch_size, Rates(), SEEDS, Masks(drawn=True, p=1.0), **part)


_ALL = (
    Task(
        "fashion-mnist",
        "Fashion-MNIST",
        "ResNet",
        lambda folder, _: fashion_mnist(folder),
        resnet8,
        _paper(),
        _lite(width=8, train_samples=10_000),
    ),
    Task(
        "cifar10",
        "CIFAR-10",
        "ResNet",
        lambda folder, _: cifar10(folder),
        resnet8,
        _paper(),
        _lite(width=8, train_samples=10_000),
    ),
    Task(
        "imagenet",
        "ImageNet-2012",
        "ResNeXt",
        lambda folder, _: imagenet(folder, validation_share=VALIDATION_SHARE),
        lambda channels, classes, _: resnext101_64x4d(classes, channels),
        _paper(epochs=100, batch_size=1536, rate=0.006),
        _lite(width=64, epochs=1, batch_size=64),
    ),
    Task(
        "speech-commands",
        "Speech Commands, 10 words",
        "Inception",
        _clips(Words()),
        inception8_1d,
        _paper(),
        _lite(width=32, train_per_word=100),
        positive_share=0.1,
    ),
    Task(
        "wake-word",
        'wake word "marvin"',
        "ResNet",
        _clips(WakeWord("marvin")),
        resnet8_1d,
        _paper(),
        _lite(width=16, train_per_word=500),
        positive_share=0.1,
        same_data_as="speech-commands",
    ),
    Task(
        "hey-snips",
        "Hey Snips",
        "ResNet",
        lambda folder, _: hey_snips(folder, balance=Balance(held_out=Whole())),
        resnet8_1d,
        _paper(),
        _lite(width=16),
        positive_share=0.1,
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}
