"""A bundle is what was written, or it is refused: every byte of it counts."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.bundles import BUNDLE, MANIFEST
from penstock.errors import BundleError, StorageError
from penstock.runtime.bundle.bundle import Bundle, read_manifest
from penstock.runtime.bundle.manifest import GateRule


@pytest.fixture
def folder(tmp_path):
    BUNDLE.write(tmp_path / "bundle")
    return tmp_path / "bundle"


def written(folder, manifest) -> None:
    (folder / "manifest.json").write_bytes(manifest if isinstance(manifest, bytes) else manifest.to_bytes())


def test_what_is_read_is_what_was_written(folder):
    assert Bundle.read(folder) == BUNDLE
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "stage-1.onnx", "stage-2.onnx"}
    assert MANIFEST.stages[0].gives.payload_bytes == 120 and MANIFEST.stages[0].takes.payload_bytes == 4 * 784


def test_positives_are_what_every_gate_is_meant_to_let_pass():
    first, last = replace(MANIFEST.stages[0], gate=GateRule(0.0, (1, 2))), MANIFEST.stages[-1]
    made = replace(MANIFEST, labels=("none", "speech", "word", "other"), stages=(first, last))
    assert made.positives == {1, 2}
    second = replace(first, gate=GateRule(0.0, (2, 3)))
    assert replace(made, stages=(first, second, last)).positives == {2}
    assert replace(made, stages=(replace(first, gate=GateRule(0.0)), last)).positives == {1, 2, 3}
    assert replace(made, stages=(replace(first, gate=None), last), background=1).positives == {0, 2, 3}


def test_the_id_changes_with_everything_that_is_said():
    others = [
        replace(MANIFEST, background=1),
        replace(MANIFEST, guarantee=None),
        replace(MANIFEST, labels=("background", "no")),
        replace(MANIFEST, stages=(replace(MANIFEST.stages[0], sha256="0" * 64), MANIFEST.stages[1])),
        replace(MANIFEST, stages=(replace(MANIFEST.stages[0], gate=GateRule(-1.2500001, (1,))), MANIFEST.stages[1])),
    ]
    assert len({manifest.id for manifest in (MANIFEST, *others)}) == 6


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_bundle_is_refused(folder, data):
    """Or it says the same, as with another blank in the manifest."""
    name = data.draw(st.sampled_from(["manifest.json", "manifest.json", "stage-1.onnx", "stage-2.onnx"]))
    path = folder / name
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.integers(0, 8))
    new = whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + cut :]
    path.write_bytes(new)
    try:
        read = Bundle.read(folder)
    except BundleError as error:
        read, reason = None, str(error)
    path.write_bytes(whole)
    assert str(folder) in reason if read is None else read == BUNDLE and (name == "manifest.json" or new == whole)


def changed(**fields) -> bytes:
    return json.dumps(json.loads(MANIFEST.to_bytes()) | fields).encode()


def of_stage(number, **fields) -> bytes:
    plain = json.loads(MANIFEST.to_bytes())
    plain["stages"][number - 1] |= fields
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is damaged: JSONDecodeError"),
        (b"[1]", "is damaged: the manifest is no object"),
        (b"{}", "is damaged: KeyError"),
        (b"[" * 100_000, "is damaged: RecursionError"),
        (changed(format=4), "was written by Penstock 0.1.0 in format 4; expected format 3. Update Penstock"),
        (changed(format="2"), "is damaged: format of the manifest is '2'"),
        (changed(labels=[]), "labels are no texts"),
        (changed(labels=["a", 1]), "labels are no texts"),
        (changed(labels=["a"]), "the last stage gives \\(2,\\), and there are 1 labels"),
        (changed(background=2), "background is 2, and there are 2 labels"),
        (changed(background=-1), "background of the manifest is -1, below 0"),
        (changed(background=True), "background of the manifest is True, which is no number"),
        (changed(stages=[]), "there are no stages"),
        (changed(stages={}), "stages of the manifest is {}, which is no list"),
        (changed(guarantee=[]), "guarantee of the manifest is no object"),
        (json.dumps({k: v for k, v in json.loads(MANIFEST.to_bytes()).items() if k != "id"}).encode(), "KeyError..id"),
        (of_stage(1, gate={"threshold": 10**400, "positives": None}), "is damaged: OverflowError"),
        (changed(model="other"), "was changed after it was written: its id is not that of its content. Export it anew"),
        (of_stage(1, file="../stage-1.onnx"), "'../stage-1.onnx' is no name of a file in the bundle"),
        (of_stage(1, file="manifest.json"), "is no name of a file in the bundle"),
        (of_stage(2, file="stage-1.onnx"), "two stages have one file"),
        (of_stage(1, takes={"shape": [0], "dtype": "float32", "scale": None}), r"shape of takes of stage 1 is \[0\]"),
        (of_stage(1, takes={"shape": [4], "dtype": "object", "scale": None}), "'object', none of float32, float16"),
        (of_stage(1, gives={"shape": [4], "dtype": "int8", "scale": None}), "stage 2 does not take what stage 1 gives"),
        (of_stage(1, gate={"threshold": float("nan"), "positives": None}), "threshold of gate of stage 1 is nan"),
        (of_stage(1, gate={"threshold": 0, "positives": ["a"]}), "positives of gate of stage 1 are no labels"),
        (of_stage(2, gate={"threshold": 0, "positives": None}), "the last stage has a gate"),
        (b" " * (4 << 20) + b"{}", "has more than the 4194304 bytes that it may have"),
    ],
)
def test_a_damaged_manifest_is_refused_with_its_reason(folder, content, text):
    written(folder, content)
    with pytest.raises(BundleError, match=text):
        read_manifest(folder)


def test_missing_and_foreign_files_are_refused(folder, tmp_path):
    with pytest.raises(
        BundleError, match=r"nowhere is no bundle: there is no manifest.json in it. Bundles are written by"
    ):
        Bundle.read(tmp_path / "nowhere")
    (folder / "stage-2.onnx").write_bytes(b"another graph, longer")
    with pytest.raises(BundleError, match=r"stage-2.onnx has more than the 10 bytes"):
        Bundle.read(folder)
    (folder / "stage-2.onnx").write_bytes(b"the fourth")
    with pytest.raises(BundleError, match=r"stage-2.onnx is damaged or was changed: it is not what the manifest lists"):
        Bundle.read(folder)
    (folder / "stage-2.onnx").unlink()
    with pytest.raises(BundleError, match=r"is not whole: stage-2.onnx is missing. Take another copy"):
        Bundle.read(folder)


def test_sizes_and_names_that_cannot_be_are_refused(folder):
    for fields, text in (({"file_bytes": 2**70}, "is damaged or was changed"), ({"file": "x" * 300}, "is not whole")):
        made = replace(MANIFEST, stages=(replace(MANIFEST.stages[0], **fields), MANIFEST.stages[1]))
        written(folder, made)
        with pytest.raises(BundleError, match=text):
            Bundle.read(str(folder))


def test_a_bundle_that_was_not_written_to_its_end_is_none(folder, monkeypatch):
    def full(path, content):
        raise StorageError("the disk is full")

    monkeypatch.setattr("penstock.runtime.bundle.bundle.write_atomically", full)
    with pytest.raises(StorageError):
        BUNDLE.write(folder)
    with pytest.raises(BundleError, match="is no bundle"):
        Bundle.read(folder)
