"""Bundles: what `penstock export` writes and a device runs.

    bundle/
      manifest.json    everything but the graphs: shapes, dtypes, thresholds, their guarantee, checksums
      stage-1.onnx     first stage: input -> packed, gate
      stage-2.onnx     next stage: packed -> packed, gate; the last stage: packed -> logits

``packed`` holds the values that the stage's mask keeps, in the dtype in which they cross the link; ``gate`` is one
logit per sample (`graph_names`). A bundle is read and checked completely before any of it runs; a bundle that was
changed after export is refused. It contains graphs and numbers, nothing executable.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BundleError
from penstock.runtime.bundle.manifest import FILE, Manifest, Stage
from penstock.runtime.bundle.manifest_parser import parse_manifest
from penstock.runtime.files import write_atomically

LARGEST_MANIFEST = 4 << 20  # size limit in bytes


@dataclass(frozen=True)
class Bundle:
    """A manifest and the graphs of its stages.

    Attributes:
        graphs: content of each stage's file.
    """

    manifest: Manifest
    graphs: tuple[bytes, ...]

    def write(self, folder: Path) -> None:
        """Write the bundle, the manifest last: without it an incomplete bundle cannot be read."""
        (folder / FILE).unlink(missing_ok=True)
        for stage, graph in zip(self.manifest.stages, self.graphs, strict=True):
            write_atomically(folder / stage.file, graph)
        write_atomically(folder / FILE, self.manifest.to_bytes())

    @classmethod
    def read(cls, folder: str | Path) -> Bundle:
        """Read and check a bundle.

        Raises:
            BundleError: when it is missing, damaged, was changed, or has another format.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        return cls(manifest, tuple(_graph(folder, stage) for stage in manifest.stages))


def read_manifest(folder: Path) -> Manifest:
    """Read and check only the manifest; see `Bundle.read`."""
    path = folder / FILE
    if not _is_file(path):
        raise BundleError(f"{folder} is not a bundle: it has no {FILE}. Create one with penstock export.")
    return parse_manifest(_read(path, LARGEST_MANIFEST), path)


def _graph(folder: Path, stage: Stage) -> bytes:
    path = folder / stage.file
    if not _is_file(path):
        raise BundleError(f"{folder} is incomplete: {stage.file} is missing. Get another copy.")
    content = _read(path, stage.file_bytes)
    if len(content) != stage.file_bytes or hashlib.sha256(content).hexdigest() != stage.sha256:
        raise BundleError(
            f"{path} is damaged or was changed: its checksum does not match the manifest. Get another copy."
        )
    return content


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example a name that is too long
        return False


def _read(path: Path, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)
    except OSError as error:
        raise BundleError(f"{path} could not be read: {error.strerror or error}.") from error
    if len(content) > limit:
        raise BundleError(f"{path} must have at most {limit} bytes. Get another copy.")
    return content
