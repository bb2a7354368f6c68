"""The chain in one process is a loop over samples, and needs no torch."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from helpers.bundles import BUNDLE, ENGINES, THREE
from penstock.errors import BundleError, ShapeError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines.onnxruntime import OnnxRuntime
from penstock.runtime.pipeline import Pipeline


def alone(x):
    """What becomes of one sample, step by step."""
    scores = [np.nan] * 3
    for number, (stage, engine) in enumerate(zip(THREE.stages, ENGINES, strict=True)):
        values, said = engine.run(x[None])
        if said is not None:
            scores[number] = 1 / (1 + np.exp(-float(said[0])))
            if said[0] < stage.gate.threshold:
                return 0, number + 1, scores
        x = values[0]
    return int(x.argmax()), 4, scores


@settings(max_examples=200, deadline=None)
@given(x=arrays(np.float32, st.tuples(st.integers(1, 9), st.just(3)), elements=st.floats(-4, 4, width=32)))
def test_a_chain_is_a_loop_over_samples(x):
    chain = Pipeline(Bundle(THREE, (b"",) * 4), engines=ENGINES)
    answers = chain.predict(x)
    for i, sample in enumerate(x):
        label, exit_stage, scores = alone(sample)
        verdict = chain.predict_one(sample)
        assert (verdict.exit_stage, verdict.stopped) == (exit_stage, exit_stage < 4)
        np.testing.assert_allclose(verdict.scores, scores, atol=1e-6)
        assert (verdict.logits is None) == (exit_stage < 4)
        assert verdict.logits is None or np.array_equal(verdict.logits, answers.logits[i])
        assert (answers.label[i], answers.exit_stage[i], answers.stopped[i]) == (label, exit_stage, exit_stage < 4)
        np.testing.assert_allclose(answers.scores[i], scores, atol=1e-6)
        assert np.isnan(answers.logits[i]).all() == (exit_stage < 4)


def test_what_is_no_batch_of_samples_is_refused():
    chain = Pipeline(Bundle(THREE, (b"",) * 4), engines=ENGINES)
    wanted = r"\(batch, 3\) float32"
    for wrong in (np.zeros((2, 4), np.float32), np.zeros(3, np.float32), np.zeros((2, 3)), [[0, 0, 0]]):
        with pytest.raises(ShapeError, match=wanted):
            chain.predict(wrong)
    for wrong in (np.zeros(4, np.float32), np.zeros(3), [0.0, 0.0, 0.0]):
        with pytest.raises(ShapeError, match=wanted):
            chain.predict_one(wrong)
    broken = np.zeros((4, 3), np.float32)
    broken[2, 1] = np.nan
    with pytest.raises(ShapeError, match=r"NaN.*\[2\] of 4"):
        chain.predict(broken)
    assert len(chain.predict(np.zeros((0, 3), np.float32)).label) == 0


def test_a_graph_that_is_none_is_refused():
    with pytest.raises(BundleError, match=r"onnxruntime [\d.]+ .*stage-1.onnx"):
        Pipeline(BUNDLE)
    with pytest.raises(BundleError, match="the graph"):
        OnnxRuntime(b"")


def test_the_device_half_loads_no_torch():
    code = """
import sys
for heavy in ("torch", "typer", "rich", "scipy", "matplotlib", "lightning", "onnx"):
    sys.modules[heavy] = None
import penstock as ps, penstock.cli, penstock.runtime.engines
ps.Bundle, ps.Pipeline
sys.argv = ["penstock", "run", "nowhere", "x.npy"]
penstock.cli.main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 1 and "BundleError: nowhere" in ran.stderr


def test_without_the_engine_the_error_names_the_extra():
    code = """
import sys
sys.modules["onnxruntime"] = None
from penstock.runtime.engines.onnxruntime import OnnxRuntime
try:
    OnnxRuntime(b"")
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "onnxruntime is not installed: pip install 'penstock[run]'\n"
