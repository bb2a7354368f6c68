"""`penstock listen`: recordings, pipes, islands, broken sound."""

import json
import signal
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import soundfile

from helpers.commands import ENTRY, penstock
from helpers.wakeword import tick_stream, trained_tick
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.islands.ops.local_cluster import LocalCluster
from penstock.wakeword.benchmark import run_stream
from penstock.wakeword.streams import SyntheticStream


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_tick(tmp_path_factory) / "bundle"


@pytest.fixture(scope="module")
def stream() -> SyntheticStream:
    return tick_stream()


@pytest.fixture(scope="module")
def wav(stream, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("recordings") / "stream.wav"
    soundfile.write(file, stream.samples, 16_000)
    return file


def test_a_recording_a_pipe_and_stereo_give_the_same_events(folder, stream, wav, tmp_path):
    expected = [round(event.detected_s, 4) for event in run_stream(Bundle.read(folder), stream).events]
    assert expected
    done = penstock("listen", str(folder), str(wav), "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert [line["detected_s"] for line in lines if line["kind"] == "detected"] == expected
    assert sum(line["kind"] == "ended" for line in lines) == len(expected)
    assert lines[-1]["kind"] == "end"
    assert lines[-1]["reached"][0] == lines[-1]["windows"]
    piped = penstock("listen", str(folder), "-", "--json", input=stream.samples.tobytes())
    assert [json.loads(text) for text in piped.stdout.splitlines()][:-1] == lines[:-1]
    twice = np.repeat(stream.samples[: 60 * 16_000, None], 2, axis=1)
    soundfile.write(tmp_path / "stereo.flac", twice, 16_000)
    stereo = penstock("listen", str(folder), str(tmp_path / "stereo.flac"))
    text = stereo.stdout.decode()
    assert stereo.returncode == 0, stereo.stderr
    assert "tick" in text
    assert "reached stage 3" in text
    assert "multiply-accumulates were done" in text


def test_islands_detect_what_one_process_detects(folder, wav):
    alone = penstock("listen", str(folder), str(wav), "--json").stdout.splitlines()
    with LocalCluster(folder) as cluster:
        done = penstock("listen", str(folder), str(wav), "--json", "--islands", cluster.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == alone[:-1]
    assert json.loads(done.stdout.splitlines()[-1])["reached"] == json.loads(alone[-1])["reached"]


def test_over_islands_the_threshold_is_applied_by_the_listener(folder, wav):
    """The islands run the bundle as it is."""
    alone = penstock("listen", str(folder), str(wav), "--json", "--threshold", "-4").stdout.splitlines()
    with LocalCluster(folder) as cluster:
        done = penstock("listen", str(folder), str(wav), "--json", "--threshold", "-4", "--islands", cluster.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == alone[:-1]


@pytest.mark.parametrize("where", ["here", "islands"])
def test_a_stalled_pipe_shows_its_events_and_ctrl_c_ends_cleanly(folder, stream, where):
    with LocalCluster(folder) if where == "islands" else nullcontext() as cluster:
        islands = () if cluster is None else ("--islands", cluster.address)
        process = subprocess.Popen(
            [*ENTRY, "listen", str(folder), "-", "--json", *islands],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # a shell ignores it for what it runs in the background
        )
        process.stdin.write(stream.samples[: 60 * 16_000].tobytes())
        process.stdin.flush()
        first = json.loads(process.stdout.readline())  # printed at once, while the pipe is still open
        assert first["kind"] == "detected"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)  # the pipe stays open, and the process does not wait for it
        out, errors = process.stdout.read(), process.stderr.read()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
    assert process.returncode == 0, errors
    assert errors == b""
    lines = [json.loads(text) for text in out.splitlines()]
    assert lines[-1]["kind"] == "end"
    assert lines[-1]["windows"] > 500


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("nowhere.wav",), 1, "nowhere.wav"),
        ((), 2, "--microphone: one of them"),
        (("x.wav", "--microphone"), 2, "one of them"),
        (("x.wav", "--threshold", "nan"), 1, "got nan"),
        (("x.wav", "--rate", "8000"), 2, "--rate and --channels"),
        (("x.wav", "--device", "3"), 2, "--device needs --microphone"),
        (("x.wav", "--threads", "0"), 2, "--threads must be at least 1, got 0"),
        (("x.wav", "--islands", "nonsense"), 1, "invalid address 'nonsense'"),
    ],
)
def test_a_wrong_argument_is_an_error(folder, arguments, code, text, tmp_path):
    done = penstock("listen", str(folder), *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert text in done.stderr.decode()


def test_the_sound_parts_of_a_broken_recording_are_used(folder, stream, tmp_path):
    samples = stream.samples[: 40 * 16_000].astype(np.float32) / 32768
    samples[5 * 16_000 : 6 * 16_000] = np.nan
    samples[10 * 16_000 : 11 * 16_000] *= 40
    soundfile.write(tmp_path / "broken.wav", samples, 16_000, subtype="FLOAT")
    done = penstock("listen", str(folder), str(tmp_path / "broken.wav"))
    assert done.returncode == 0, done.stderr
    assert "1 gap: 0 samples lost, 16,000 invalid" in done.stdout.decode()
    assert "of the samples are at full scale: clipped?" in done.stdout.decode()
    soundfile.write(tmp_path / "short.wav", samples[:800], 16_000)
    short = penstock("listen", str(folder), str(tmp_path / "short.wav"))
    assert "shorter than one window" in short.stdout.decode()
    for name, odd in {
        "silence": np.zeros(20 * 16_000, np.int16),
        "square": np.tile(np.repeat(np.array([32767, -32768], np.int16), 50), 3200),
    }.items():
        soundfile.write(tmp_path / f"{name}.wav", odd, 16_000)
        done = penstock("listen", str(folder), str(tmp_path / f"{name}.wav"))
        assert "0 events in" in done.stdout.decode(), name
