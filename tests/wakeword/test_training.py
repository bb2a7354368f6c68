"""A wake word that is easy to hear is heard: from clips to a bundle, and from the bundle to events."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import penstock as ps
from helpers.syllables import syllables
from helpers.zoo import sequential
from penstock.cli import main
from penstock.cli.wakeword import display_names
from penstock.errors import CalibrationError, DataError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.islands.ops.local_cluster import LocalCluster
from penstock.runtime.locks import wait_for_lock
from penstock.runtime.streaming.detector import log_odds
from penstock.runtime.streaming.features import LogMel
from penstock.training.fit import fit
from penstock.training.module import CollapseWarning
from penstock.wakeword import training
from penstock.wakeword.benchmark import measure_cost, run_benchmark, run_stream, situation_streams
from penstock.wakeword.clips import ClipSet, locate_word
from penstock.wakeword.scoring import score_stream, stream_windows, window_outputs
from penstock.wakeword.streams import StreamSpec, synthesize_stream
from penstock.wakeword.thresholds import score_at
from penstock.wakeword.training import MINED, TrainedWakeWord, WakeWordConfig, mine_hard_negatives, train_wakeword

CONFIG = WakeWordConfig(
    width=8,
    windows=4000,
    epochs=5,
    rounds=1,
    validation_hours=0.2,
    mining_hours=0.2,
    max_positive_loss=0.03,
    max_false_alarms_per_hour=5.0,
    alarm_confidence=None,
    frontend=LogMel(mels=16),
)


WORDS = {"tick": (500, 2500), "tock": (2500, 500), "hum": (300, 300), "hiss": (5000, 5500)}


def voices(start: int, count: int) -> ClipSet:
    words = {name: [locate_word(syllables(*hz, seed=start + i)) for i in range(count)] for name, hz in WORDS.items()}
    noise = np.random.default_rng(start).normal(0, 2000, 30 * 16_000).astype(np.int16)
    return ClipSet(words, [noise])


MATERIAL = {"train": voices(0, 40), "validation": voices(1000, 30), "test": voices(2000, 30)}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    """The folder of what was taught and of its bundle; of the processes that test, the first to come teaches."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wakeword"
    with wait_for_lock(root / "lock", "training"):
        if not (root / "bundle").exists():
            trained = train_wakeword(MATERIAL, "tick", CONFIG, progress=False)
            torch.save(trained, root / "taught.pt")
            trained.export(root / "bundle")
    return root


@pytest.fixture(scope="module")
def trained(config) -> TrainedWakeWord:
    return torch.load(config / "taught.pt", weights_only=False)


@pytest.fixture(scope="module")
def folder(config) -> Path:
    return config / "bundle"


@pytest.fixture(scope="module")
def stream():
    return synthesize_stream(StreamSpec(240.0, "tick", 20), MATERIAL["test"], 9)


def test_an_easy_word_is_heard_by_voices_that_were_never_heard(folder, stream):
    run = run_stream(Bundle.read(folder), stream)
    judged = run.metrics
    assert judged.misses <= 2
    assert judged.false_alarms <= 2
    assert run.stopped_early > 0.5
    assert run.counts.reached[0] > run.counts.reached[1] > run.counts.reached[2] > 0


def test_the_bundle_hears_what_the_network_hears(trained, folder, stream):
    run = run_stream(Bundle.read(folder), stream)
    whole = score_stream(trained.net, trained.stream_config, stream)
    np.testing.assert_allclose(run.times_s, whole.times_s)
    agree = np.isclose(run.scores, whole.scores, atol=0.01)
    assert agree.mean() > 0.999  # a window at a gate's very threshold may fall to either side
    threshold = trained.chosen.threshold
    ours, theirs = (
        score_at([run.scored_stream()], threshold),
        score_at([whole.scored_stream(trained.stream_config.detector)], threshold),
    )
    assert (ours.misses, ours.false_alarms) == (theirs.misses, theirs.false_alarms)
    assert (ours.misses, ours.false_alarms) == (run.metrics.misses, run.metrics.false_alarms)


def test_what_a_gate_that_learns_classes_says_of_windows_is_one_number_each():
    net = ps.gate(
        sequential(), torch.zeros(2, 6), at=[0.3, 0.7], layer=ps.LayerConfig(class_loss_weight=0.3), positives={1, 2}
    )
    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    _, gates = window_outputs(net, x, batch_size=7)
    out = net(torch.from_numpy(x))
    for layer, ours, theirs in zip(net.layers, gates, out.gates, strict=True):
        np.testing.assert_allclose(ours, layer.gate.gate_logit(theirs).detach().numpy(), atol=1e-6)


def with_bias(net, log_odds):
    """Return a copy of the network that adds this to the logit of the word."""
    net = deepcopy(net)
    classifier = next(m for m in net.stages[-1].modules() if getattr(m, "out_features", None) == len(WORDS) + 1)
    with torch.no_grad():
        classifier.bias[1] += log_odds
    return net


def test_hard_negatives_are_the_windows_most_like_the_word_in_streams_without_it(trained):
    """Against the dumb way: score the whole stream, sort, take the first."""
    net = with_bias(trained.net, 8)
    x, y = mine_hard_negatives(net, trained.stream_config, MATERIAL["train"], "tick", hours=0.1, seed=3, per_hour=200)
    stream = synthesize_stream(StreamSpec(360.0, "tick", 0), MATERIAL["train"], 3)
    windows, _ = stream_windows(trained.stream_config, stream.samples)
    logits, _ = window_outputs(net, windows)
    scores = log_odds(logits, 1)
    order = sorted(range(len(windows)), key=lambda i: -scores[i])[:20]
    assert len(x) == 20 and scores[order[-1]] > MINED, "there are enough of them"
    np.testing.assert_array_equal(x, windows[order])
    assert y.tolist() == [max((c for c in range(5) if c != 1), key=lambda c: logits[i, c]) for i in order]
    assert stream.truths == (), "none of them is the word"


def test_windows_that_are_unlike_the_word_are_not_mined(trained):
    net = with_bias(trained.net, -100)
    x, y = mine_hard_negatives(net, trained.stream_config, MATERIAL["train"], "tick", hours=0.1, seed=3)
    assert len(x) == len(y) == 0


def test_each_round_trains_on_the_hard_negatives_it_mined(monkeypatch):
    config = WakeWordConfig(
        width=4,
        gate_blocks=(),
        windows=300,
        epochs=1,
        rounds=2,
        validation_hours=0.05,
        mining_hours=0.05,
        max_false_alarms_per_hour=1000.0,
        alarm_confidence=None,
    )
    mined, fitted = [], []

    def mine(*args, **options):
        mined.append(mine_hard_negatives(*args, **options))
        return mined[-1]

    def fit_and_keep(net, data, **options):
        fitted.append([part.numpy() for part in data])
        return fit(net, data, **options)

    monkeypatch.setattr(training, "mine_hard_negatives", mine)
    monkeypatch.setattr(training, "fit", fit_and_keep)
    train_wakeword(MATERIAL, "tick", config, progress=False)
    assert len(mined) == 2 and len(fitted) == 3
    for (hard_x, hard_y), (x, y) in zip(mined, fitted[1:], strict=True):
        count = 3 * len(hard_x)
        assert count > 0
        np.testing.assert_array_equal(x[-count:], np.concatenate([hard_x] * 3))
        np.testing.assert_array_equal(y[-count:], np.concatenate([hard_y] * 3))
        assert 1 not in y[-count:]


def test_what_a_second_costs_depends_on_what_there_is_to_hear(folder):
    bundle = Bundle.read(folder)
    costs = {
        name: measure_cost({"gated": bundle}, [made], repeats=1)["gated"]
        for name, made in situation_streams(MATERIAL["test"], "tick", seconds=30.0, seed=4)
    }
    assert set(costs) == {"silence", "noise", "speech", "keyword"}
    stages = bundle.manifest.stages
    for cost in costs.values():
        assert cost.macs == pytest.approx(
            sum(stage.macs * share for stage, share in zip(stages, cost.reached, strict=True)) * 10, rel=0.05
        )
        assert cost.ms > 0
    assert costs["silence"].macs < costs["keyword"].macs
    assert costs["silence"].crossed_bytes <= costs["keyword"].crossed_bytes


def test_a_plain_network_can_be_taught_too():
    config = WakeWordConfig(
        width=4, gate_blocks=(), windows=1000, epochs=2, rounds=0, validation_hours=0.1, max_false_alarms_per_hour=60.0
    )  # at 95 %
    found = train_wakeword(MATERIAL, "tick", config, progress=False)
    assert len(found.net.stages) == 1
    assert found.reached == (1.0,)


def test_a_network_that_hears_nothing_is_not_calibrated():
    config = WakeWordConfig(width=4, windows=300, epochs=1, rounds=0, validation_hours=0.1, alarm_confidence=None)
    warnings.simplefilter("ignore", CollapseWarning)
    with pytest.raises(CalibrationError, match=r"none of \d+ windows"):
        train_wakeword(MATERIAL, "tick", config, progress=False)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"gate_blocks": (5, 2)}, r"gate_blocks .* \(5, 2\)"),
        ({"gate_blocks": (1, 2, 3)}, "gate_blocks"),
        ({"epochs": 0}, "epochs .* 0"),
        ({"mining_hours": 0.0}, "mining_hours"),
        ({"max_positive_loss": 5.0}, "max_positive_loss .* 5"),
        ({"max_miss_rate": 1.0}, "max_miss_rate .* 1"),
        ({"alarm_confidence": 1.0}, "confidence .* 1.0"),
        (
            {"alarm_confidence": 0.95, "max_false_alarms_per_hour": 0.25, "validation_hours": 6.0},
            "0.25 false alarms per hour .* 12.0 h .* 6 h",
        ),
    ],
)
def test_lessons_that_make_no_sense(fields, text):
    with pytest.raises(DataError, match=text):
        WakeWordConfig(**fields)


def penstock(*arguments: str, **how) -> subprocess.CompletedProcess:
    code = "from penstock.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False, **how)


@pytest.fixture(scope="module")
def wav(stream, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("recordings") / "stream.wav"
    soundfile.write(file, stream.samples, 16_000)
    return file


def test_the_command_hears_a_recording_a_pipe_and_another_rate(folder, stream, wav, tmp_path):
    wanted = [round(event.detected_s, 4) for event in run_stream(Bundle.read(folder), stream).events]
    assert wanted
    done = penstock("listen", str(folder), str(wav), "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert [line["detected_s"] for line in lines if line["kind"] == "detected"] == wanted
    assert sum(line["kind"] == "ended" for line in lines) == len(wanted)
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


def test_the_command_hears_over_islands_what_it_hears_alone(folder, wav):
    alone = penstock("listen", str(folder), str(wav), "--json").stdout.splitlines()
    with LocalCluster(folder) as cluster:
        done = penstock("listen", str(folder), str(wav), "--json", "--islands", cluster.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == alone[:-1]
    assert json.loads(done.stdout.splitlines()[-1])["reached"] == json.loads(alone[-1])["reached"]


def test_over_islands_a_threshold_is_a_matter_of_who_listens(folder, wav):
    """The islands run the bundle as it is."""
    alone = penstock("listen", str(folder), str(wav), "--json", "--threshold", "-4").stdout.splitlines()
    with LocalCluster(folder) as cluster:
        done = penstock("listen", str(folder), str(wav), "--json", "--threshold", "-4", "--islands", cluster.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == alone[:-1]


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> Path:
    """The same voices as a folder of clips, in parts of their own, with noise beside them."""
    root = tmp_path_factory.mktemp("clips")
    for part, of in MATERIAL.items():
        for word, inside in of.words.items():
            (root / part / word).mkdir(parents=True)
            for i, clip in enumerate(inside):
                soundfile.write(root / part / word / f"{i}.wav", clip.samples, 16_000)
    (root / "_background_noise_").mkdir()
    soundfile.write(root / "_background_noise_" / "hiss.wav", MATERIAL["train"].noises[0], 16_000)
    return root


def test_the_commands_teach_and_judge(clips, tmp_path):
    options = [
        "--gates",
        "none",
        "--width",
        "4",
        "--windows",
        "1000",
        "--epochs",
        "2",
        "--rounds",
        "0",
        "--hours",
        "0.1",
    ]
    config = ("wakeword", "train", "--word", "tick", "--data", str(clips), "-o", str(tmp_path / "tick"), *options)
    done = penstock(
        *config, "--max-false-alarms", "99", "--max-miss-rate", "0.3", "--json", "--plot", str(tmp_path / "det.png")
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["classes"] == ["background", "tick", "hiss", "hum", "tock"]
    assert said["reached"] == [1.0]
    assert said["miss_bound"] >= said["misses"] / said["spoken"]
    assert (tmp_path / "det.png").stat().st_size > 10_000
    short = ("--data", str(clips), "--hours", "0.1", "--repeats", "1", "--json")
    judged = penstock("wakeword", "evaluate", str(tmp_path / "tick"), *short)
    assert judged.returncode == 0, judged.stderr
    found = json.loads(judged.stdout)["tick"]
    assert found["tiny"]["spoken"] == 30
    assert found["tiny"]["hours"] == pytest.approx(1 / 3)
    assert set(found["upkeep"]) == {"silence", "noise", "speech", "keyword"}
    assert [row[0] for row in found["points"]] == sorted(row[0] for row in found["points"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("wakeword", "train", "--word", "tack", "-o", "x"), "has no folder 'tack'"),
        (("wakeword", "evaluate", "x", "--hours", "0"), "--hours"),
    ],
)
def test_lessons_and_judgements_that_are_refused(arguments, text, clips, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments, "--data", str(clips)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert text in capsys.readouterr().err


def test_bundles_of_one_name_are_told_apart():
    assert display_names([Path("a/marvin"), Path("b/plain")]) == ["marvin", "plain"]
    assert display_names([Path("a/marvin"), Path("b/marvin")]) == [str(Path("a/marvin")), str(Path("b/marvin"))]


@pytest.mark.parametrize("where", ["here", "islands"])
def test_a_pipe_that_stalls_is_heard_and_ctrl_c_ends_cleanly(folder, stream, where):
    code = "from penstock.cli import main; main()"
    with LocalCluster(folder) if where == "islands" else nullcontext() as cluster:
        elsewhere = () if cluster is None else ("--islands", cluster.address)
        process = subprocess.Popen(
            [sys.executable, "-c", code, "listen", str(folder), "-", "--json", *elsewhere],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it is ignored where tests run behind &
        )
        process.stdin.write(stream.samples[: 60 * 16_000].tobytes())
        process.stdin.flush()
        first = json.loads(process.stdout.readline())  # it is told at once, while the pipe is still open
        assert first["kind"] == "detected"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)  # the pipe stays open: nothing more comes, and nobody waits for it
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
        (("x.wav", "--threshold", "nan"), 1, "--threshold must be a finite number, got nan"),
        (("x.wav", "--rate", "8000"), 2, "--rate and --channels"),
        (("x.wav", "--device", "3"), 2, "--device needs --microphone"),
        (("x.wav", "--threads", "0"), 2, "--threads must be at least 1, got 0"),
        (("x.wav", "--islands", "nonsense"), 1, "invalid address 'nonsense'"),
    ],
)
def test_what_cannot_be_listened_to(folder, arguments, code, text, tmp_path):
    done = penstock("listen", str(folder), *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert text in done.stderr.decode()


def test_what_is_in_the_way_of_a_bundle_is_said_before_the_lesson(clips, tmp_path):
    (tmp_path / "taken").write_text("a file")
    done = penstock("wakeword", "train", "--word", "tick", "--data", str(clips), "-o", str(tmp_path / "taken"))
    assert done.returncode == 1
    assert "cannot create the folder" in " ".join(done.stderr.decode().split())


def test_only_bundles_of_one_word_are_judged_together(trained, folder):
    bundle = Bundle.read(folder)
    stream_config = bundle.manifest.stream_config
    other = replace(bundle, manifest=replace(bundle.manifest, stream_config=replace(stream_config, words=(2,))))
    with pytest.raises(DataError, match=r"other: .*'tick'.*'hiss'"):
        run_benchmark({"one": bundle, "other": other}, MATERIAL["test"], "tick", hours=0.1)


def test_of_several_words_the_first_is_judged(folder, stream):
    bundle = Bundle.read(folder)
    stream_config = replace(
        bundle.manifest.stream_config, words=(1, 2), detector=bundle.manifest.stream_config.detector.at(-9.0)
    )
    both = run_stream(replace(bundle, manifest=replace(bundle.manifest, stream_config=stream_config)), stream)
    alone = replace(stream_config, words=(1,))
    one = run_stream(replace(bundle, manifest=replace(bundle.manifest, stream_config=alone)), stream)
    assert both.events == one.events and {event.label for event in both.events} == {"tick"}


def test_broken_sound_is_heard_as_far_as_it_is_sound(folder, stream, tmp_path):
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
        heard_nothing = penstock("listen", str(folder), str(tmp_path / f"{name}.wav"))
        assert "0 events in" in heard_nothing.stdout.decode(), name
