"""Files: damaged, foreign, newer, interrupted, and a full disk."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch
from torch import nn

import penstock as ps
from helpers.zoo import Branching, Shared, build, sequential
from penstock.errors import StorageError
from reproduction.baselines import branchynet


@pytest.fixture
def saved(tmp_path):
    net = ps.gate(sequential(), torch.zeros(2, 6), at=0.5)
    path = tmp_path / "net.safetensors"
    ps.save(net, path)
    return path


def test_what_is_tied_stays_tied(tmp_path):
    net = ps.gate(Shared(), torch.zeros(2, 6), at=0.5)
    ps.save(net, tmp_path / "net.safetensors")
    again = ps.load(tmp_path / "net.safetensors", Shared())
    assert again.origin.tied.weight is again.origin.first.weight
    x = torch.randn(3, 6)
    assert torch.equal(again(x).logits, net(x).logits)


class Views(nn.Module):
    """A network with two buffers on one storage."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("full", torch.arange(8.0))
        self.register_buffer("part", self.full[:3])

    def forward(self, x):
        return self.last(torch.relu(self.first(x)) + self.full) + self.part


def test_buffers_that_share_a_storage_are_written(tmp_path):
    net = ps.gate(Views(), torch.zeros(2, 6), at="first")
    ps.save(net, tmp_path / "net.safetensors")
    x = torch.randn(3, 6)
    assert torch.equal(ps.load(tmp_path / "net.safetensors", Views())(x).logits, net(x).logits)


def test_what_is_no_tensor_is_refused(tmp_path):
    class Counts(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

        def set_extra_state(self, state):
            pass

    net = ps.gate(nn.Sequential(Counts(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.zeros(2, 6), at=0.5)
    with pytest.raises(StorageError, match=r"0._extra_state"):
        ps.save(net, tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


def test_how_a_mask_is_trained_and_what_a_gate_reads_is_kept(tmp_path):
    configs = [
        ps.LayerConfig(granularity="channel", mask="drawn", gate_input="all"),
        ps.LayerConfig("gate", class_loss_weight=0.3),
    ]
    net = ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], layer=configs)
    ps.save(net, tmp_path / "net.safetensors")
    again = ps.load(tmp_path / "net.safetensors", sequential())
    assert [layer.config for layer in again.layers] == [layer.config for layer in net.layers]
    assert again.layers[0].compression.mask_kind == "drawn"
    assert again.layers[1].gate.class_loss_weight == 0.3


def test_a_list_of_stages_can_be_saved_and_loaded(tmp_path):
    def stages():
        return [nn.Linear(6, 6), Branching()]

    net, x = ps.gate(stages(), torch.randn(4, 6)), torch.randn(4, 6)
    ps.save(net, tmp_path / "net.safetensors")
    assert torch.equal(ps.load(tmp_path / "net.safetensors", stages())(x).logits, net(x).logits)


def test_loading_leaves_the_given_model_untouched(saved):
    model = sequential()
    before = model[0].weight.clone()
    net = ps.load(saved, model)
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(net.origin[0].weight, before)


def test_no_pickle_inside(saved):
    content = saved.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert json.loads(header["__metadata__"]["penstock"])["format"] == 5


@pytest.mark.parametrize("cut", [4, 100, 1000, -1])
def test_a_truncated_file(saved, cut):
    saved.write_bytes(saved.read_bytes()[:cut])
    with pytest.raises(StorageError, match="damaged"):
        ps.load(saved, sequential())


def test_a_flipped_bit(saved):
    content = bytearray(saved.read_bytes())
    content[-5] ^= 1
    saved.write_bytes(content)
    with pytest.raises(StorageError, match="checksum"):
        ps.load(saved, sequential())


def test_a_changed_header(saved):
    """The checksum covers the header too: a guarantee cannot be edited."""
    content = saved.read_bytes()
    assert content.count(b'\\"background\\": 0') == 1
    saved.write_bytes(content.replace(b'\\"background\\": 0', b'\\"background\\": 1'))
    with pytest.raises(StorageError, match="checksum"):
        ps.load(saved, sequential())


def with_header(path, change):
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["penstock"])
    path.write_bytes(safetensors.torch.save(tensors, {"penstock": change(header)}))


def test_a_newer_file(saved):
    with_header(saved, lambda header: json.dumps(header | {"format": 6, "penstock": "9.1"}))
    with pytest.raises(StorageError, match=r"format 6.*Update Penstock"):
        ps.load(saved, sequential())


def test_an_older_file(saved):
    with_header(saved, lambda header: json.dumps(header | {"format": 1, "penstock": "0.0.9"}))
    with pytest.raises(StorageError, match=r"format 1.*save it again"):
        ps.load(saved, sequential())


@pytest.mark.parametrize("broken", ["[]", "not json", "{}", '{"format": "x"}'])
def test_a_damaged_header(saved, broken):
    with_header(saved, lambda header: broken)
    with pytest.raises(StorageError, match="header"):
        ps.load(saved, sequential())


def test_foreign_files(tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(safetensors.torch.save({"a": torch.zeros(2)}))
    with pytest.raises(StorageError, match="'penstock'"):
        ps.load(foreign, sequential())
    foreign.write_text("hello")
    with pytest.raises(StorageError, match="damaged"):
        ps.load(foreign, sequential())
    with pytest.raises(StorageError, match="nothing"):
        ps.load(tmp_path / "nothing", sequential())


def test_another_network(saved):
    with pytest.raises(StorageError, match=r"Sequential.*Shared"):
        ps.load(saved, Shared())
    wider = nn.Sequential(
        nn.Linear(6, 13), nn.BatchNorm1d(13), nn.ReLU(), nn.Dropout(), nn.Linear(13, 8), nn.Tanh(), nn.Linear(8, 4)
    )
    with pytest.raises(StorageError, match="size mismatch"):
        ps.load(saved, wider)
    with pytest.raises(StorageError, match=r"Sequential.*list"):
        ps.load(saved, [nn.Linear(6, 6), nn.Linear(6, 4)])


def test_a_gate_of_another_kind_is_not_written(saved):
    """`load` could not build it again."""
    before = saved.read_bytes()
    with pytest.raises(StorageError, match=r"layer 0 .* Exit"):
        ps.save(branchynet(sequential(), torch.zeros(2, 6), at=0.5), saved)
    assert saved.read_bytes() == before


def test_a_full_disk_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        ps.save(ps.gate(build("sequential")[0], torch.zeros(2, 6), at=0.5), saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]  # nothing is left behind


LIMITED = """
import resource, signal, sys, torch, penstock as ps
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from torch import nn
net = ps.gate(nn.Sequential(nn.Linear(6, 900), nn.ReLU(), nn.Linear(900, 4)), torch.zeros(2, 6), at=0.5)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    ps.save(net, sys.argv[1])
except ps.errors.StorageError as error:
    print(error)
"""


def test_a_disk_that_is_really_full_in_the_middle_of_the_file(tmp_path):
    """The system lets the process write 20,000 bytes and no more."""
    path = tmp_path / "net.safetensors"
    path.write_text("what was there before")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert path.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [path]


WRITER = """
import os, sys, torch, penstock as ps
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
net = ps.gate(nn.Sequential(nn.Linear(6, 900), nn.ReLU(), nn.Linear(900, 4)), torch.zeros(2, 6), at=0.5)
for _ in sys.stdin:
    writer = os.fork()
    while writer == 0:
        with torch.no_grad():
            for p in net.parameters(): p.add_(1)
        ps.save(net, sys.argv[1])
    print(writer, flush=True)
    os.waitpid(writer, 0)
"""


def test_a_kill_in_the_middle_of_writing_leaves_a_whole_file(tmp_path):
    path = tmp_path / "net.safetensors"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writers:
        for pause in (0.0, 0.003, 0.007, 0.013, 0.02):
            path.unlink(missing_ok=True)
            writers.stdin.write("one more\n")
            writers.stdin.flush()
            writer = int(writers.stdout.readline())
            while not path.exists():
                time.sleep(0.001)
            first = path.stat().st_mtime_ns
            while path.stat().st_mtime_ns == first:  # it writes again and again by now
                time.sleep(0.001)
            time.sleep(pause)
            os.kill(writer, signal.SIGKILL)
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 900), nn.ReLU(), nn.Linear(900, 4))
            first = [p.detach().clone() for p in model.parameters()]
            read = ps.ungate(ps.load(path, model)).parameters()
            grown = torch.cat([(now - then).flatten() for now, then in zip(read, first, strict=True)])
            assert grown.mean() > 0.5 and (grown - grown.mean()).abs().max() < 0.1  # one state, not parts of two
