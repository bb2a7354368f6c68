"""Export the bundle that the tests of the cloud serve: that takes torch, which their own environment has not.

python tests/cloud/export_bundle.py FOLDER
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))  # for `zoo`

import penstock as ps
from zoo import build

if __name__ == "__main__":
    torch.manual_seed(0)
    model, draw = build("conv1d")
    x = draw(64)
    net = ps.gate(model, x[:2], at=2).eval()
    with torch.no_grad():
        net.thresholds = [float(said.double().quantile(0.3)) for said in net(x).gates]
    ps.export(net, x[:2], Path(sys.argv[1]))
