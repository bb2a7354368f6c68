"""How heavy: gating ResNeXt-101 64x4d. Measured in a process of its own, whose memory is watched."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.figures import Figure

CODE = """
import json, threading, time, torch
import penstock as ps
from reproduction.models.resnext import resnext101_64x4d
from penstock.models.resnet import resnet8

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

ps.gate(resnet8(), torch.zeros(1, 1, 28, 28), at=0.4)  # what is loaded once is not this network's
model = resnext101_64x4d()
example = torch.zeros(1, 3, 224, 224)
size = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
before, peak, done = resident(), 0, False

def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.002)

thread = threading.Thread(target=watch)
thread.start()
start = time.perf_counter()
net = ps.gate(model, example, at=0.4)
seconds = time.perf_counter() - start
done = True
thread.join()
peak = max(peak, resident())
cost = {"seconds": seconds, "extra": peak - before, "model": size}
print(json.dumps(cost | {"at": net.spec.at, "macs": sum(net.spec.macs)}))
"""


def measure() -> list[Figure]:
    """Return the time of gate(), and its extra peak memory over the size of the model."""
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    best = min(runs, key=lambda run: run["seconds"])
    heaviest = max(runs, key=lambda run: run["extra"])
    return [
        Figure("gate() on ResNeXt-101 64x4d, 224×224: seconds", best["seconds"], "<=", 10, best),
        Figure(
            "gate() on ResNeXt-101 64x4d, 224×224: extra peak memory / the model",
            heaviest["extra"] / heaviest["model"],
            "<=",
            1.2,
            heaviest,
        ),
    ]
