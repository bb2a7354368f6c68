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
from penstock.runtime.images.config import ImageConfig

PICTURES = replace(MANIFEST, image_config=ImageConfig(28, 28, share=1, mean=(0,), std=(0.5,)))


@pytest.fixture
def folder(tmp_path):
    BUNDLE.write(tmp_path / "bundle")
    return tmp_path / "bundle"


def written(folder, manifest) -> None:
    (folder / "manifest.json").write_bytes(manifest if isinstance(manifest, bytes) else manifest.to_bytes())


def test_what_is_read_is_what_was_written(folder):
    assert Bundle.read(folder) == BUNDLE
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "stage-1.onnx", "stage-2.onnx"}
    assert MANIFEST.stages[0].output.payload_bytes == 120 and MANIFEST.stages[0].input.payload_bytes == 4 * 784


def test_a_bundle_keeps_how_a_picture_becomes_its_input(folder):
    written(folder, PICTURES)
    read = Bundle.read(folder)
    assert read.manifest == PICTURES and read.manifest.id == PICTURES.id != MANIFEST.id


def test_bundles_from_before_pictures_still_read(folder):
    """The field is left out when there is none, so that the id stays what it was."""
    assert "image_config" not in json.loads((folder / "manifest.json").read_text())
    assert MANIFEST.id == "91b3eb29a99ed39540c150b0bb38cd2738bdf404ad584c8067c37da732a06d3c"


def of_image(**fields) -> bytes:
    plain = json.loads(PICTURES.to_bytes())
    plain["image_config"] |= fields
    return json.dumps(plain).encode()


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
    ("content", "token"),
    [
        (b"", "JSONDecodeError"),
        (b"[1]", r"manifest.*\[1\]"),
        (b"{}", "'format'"),
        (b"[" * 100_000, "RecursionError"),
        (changed(format="2"), "format.*'2'"),
        (changed(labels=[]), "labels"),
        (changed(labels=["a", 1]), "labels"),
        (changed(labels=["a"]), r"last stage.*1.*\(2,\)"),
        (changed(background=2), "background.* 2"),
        (changed(background=-1), "background.*-1"),
        (changed(background=True), "background.*True"),
        (changed(stages=[]), "stages"),
        (changed(stages={}), "stages.*list.*{}"),
        (changed(guarantee=[]), "guarantee.*object"),
        (json.dumps({k: v for k, v in json.loads(MANIFEST.to_bytes()).items() if k != "id"}).encode(), "'id'"),
        (of_stage(1, gate={"threshold": 10**400, "positives": None}), "OverflowError"),
        (changed(model="other"), "changed.*id"),
        (of_stage(1, file="../stage-1.onnx"), "file.*'../stage-1.onnx'"),
        (of_stage(1, file="manifest.json"), "file.*'manifest.json'"),
        (of_stage(2, file="stage-1.onnx"), "same file"),
        (of_stage(1, input={"shape": [0], "dtype": "float32", "scale": None}), r"shape of input of stage 1.*\[0\]"),
        (of_stage(1, input={"shape": [4], "dtype": "object", "scale": None}), "dtype.*float32, float16.*'object'"),
        (of_stage(1, output={"shape": [4], "dtype": "int8", "scale": None}), "input of stage 2.*output of stage 1"),
        (of_stage(1, gate={"threshold": float("nan"), "positives": None}), "threshold of gate of stage 1.*nan"),
        (of_stage(1, gate={"threshold": 0, "positives": ["a"]}), "positives of gate of stage 1.*'a'"),
        (of_stage(2, gate={"threshold": 0, "positives": None}), "last stage.*gate"),
        (b" " * (4 << 20) + b"{}", "4194304"),
        (changed(image_config=[]), "image_config.*object"),
        (changed(image_config=None), "image_config.*object"),
        (changed(image_config={"height": 28}), "image_config.*no field 'width'"),
        (of_image(height=27), r"input of stage 1 must be \(1, 27, 28\) float32, one picture, got \(1, 28, 28\)"),
        (of_image(height="28"), "height of image_config.*'28'"),
        (of_image(fit="pad"), "image_config: fit must be one of crop, stretch, got 'pad'"),
        (of_image(share=2), r"image_config: share .*2\.0"),
        (of_image(mean=[None]), "mean of image_config.*None"),
        (of_image(std=[0]), "image_config: .*std"),
        (of_image(mean=[0.1]), "changed.*id"),
    ],
)
def test_a_damaged_manifest_is_refused_with_its_reason(folder, content, token):
    written(folder, content)
    with pytest.raises(BundleError, match=token):
        read_manifest(folder)


@pytest.mark.parametrize(("number", "fix"), [(1, "penstock export"), (2, "penstock export"), (4, "Update Penstock")])
def test_a_bundle_of_another_format_says_what_to_do(folder, number, fix):
    fields = {"format": number, "penstock": "0.0.9", "stages": "of another form"}
    written(folder, json.dumps(fields).encode())
    with pytest.raises(BundleError, match=rf"format {number} .*0\.0\.9.*format 3.*{fix}"):
        Bundle.read(folder)


def test_missing_and_foreign_files_are_refused(folder, tmp_path):
    with pytest.raises(BundleError, match=r"nowhere.*manifest.json"):
        Bundle.read(tmp_path / "nowhere")
    (folder / "stage-2.onnx").write_bytes(b"another graph, longer")
    with pytest.raises(BundleError, match=r"stage-2.onnx.* 10 bytes"):
        Bundle.read(folder)
    (folder / "stage-2.onnx").write_bytes(b"the fourth")
    with pytest.raises(BundleError, match=r"stage-2.onnx.*checksum"):
        Bundle.read(folder)
    (folder / "stage-2.onnx").unlink()
    with pytest.raises(BundleError, match=r"stage-2.onnx is missing"):
        Bundle.read(folder)


def test_sizes_and_names_that_cannot_be_are_refused(folder):
    for fields, token in (({"file_bytes": 2**70}, "checksum"), ({"file": "x" * 300}, "missing")):
        manifest = replace(MANIFEST, stages=(replace(MANIFEST.stages[0], **fields), MANIFEST.stages[1]))
        written(folder, manifest)
        with pytest.raises(BundleError, match=token):
            Bundle.read(str(folder))


def test_a_bundle_that_was_not_written_to_its_end_is_none(folder, monkeypatch):
    def full(path, content):
        raise StorageError("the disk is full")

    monkeypatch.setattr("penstock.runtime.bundle.bundle.write_atomically", full)
    with pytest.raises(StorageError):
        BUNDLE.write(folder)
    with pytest.raises(BundleError, match=r"manifest.json"):
        Bundle.read(folder)
