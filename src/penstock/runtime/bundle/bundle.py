"""What is deployed: one static graph a stage, and a manifest that says what flows between them.

    bundle/
      manifest.json    everything but the graphs: shapes, types, thresholds, the promise they keep, checksums
      stage-1.onnx     the first stage: the input -> packed, gate
      stage-2.onnx     the next one: packed -> packed, gate; the last one: packed -> logits

A stage gives ``packed``, the values that its mask keeps, in the type in which they cross the link, and ``gate``, one
logit a sample. A bundle is read whole, checked, and only then used: what was changed after it was written is refused.
It holds graphs and numbers, and nothing that could run as code.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BundleError
from penstock.runtime.bundle.manifest import FILE, Manifest, Stage, parse_manifest
from penstock.runtime.files import write_atomically

LARGEST_MANIFEST = 4 << 20
"""Bytes; more is not read."""


@dataclass(frozen=True)
class Bundle:
    """A manifest, and the graphs that it lists, as they were checked.

    Attributes:
        graphs: the content of each stage's file.
    """

    manifest: Manifest
    graphs: tuple[bytes, ...]

    def write(self, folder: Path) -> None:
        """Write it; the manifest last, so that a bundle that was not written to its end is none."""
        (folder / FILE).unlink(missing_ok=True)
        for stage, graph in zip(self.manifest.stages, self.graphs, strict=True):
            write_atomically(folder / stage.file, graph)
        write_atomically(folder / FILE, self.manifest.to_bytes())

    @classmethod
    def read(cls, folder: str | Path) -> Bundle:
        """Read a bundle and check all of it.

        Raises:
            BundleError: when it is missing, damaged, changed, or of a newer format.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        return cls(manifest, tuple(_graph(folder, stage) for stage in manifest.stages))


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest alone.

    Raises:
        BundleError: when it is missing, damaged, changed, or of a newer format.
    """
    path = folder / FILE
    if not _is_file(path):
        raise BundleError(f"{folder} is no bundle: there is no {FILE} in it. Bundles are written by penstock.export.")
    return parse_manifest(_content(path, LARGEST_MANIFEST), path)


def _graph(folder: Path, stage: Stage) -> bytes:
    path = folder / stage.file
    if not _is_file(path):
        raise BundleError(f"{folder} is not whole: {stage.file} is missing. Take another copy.")
    content = _content(path, stage.file_bytes)
    if len(content) != stage.file_bytes or hashlib.sha256(content).hexdigest() != stage.sha256:
        raise BundleError(f"{path} is damaged or was changed: it is not what the manifest lists. Take another copy.")
    return content


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _content(path: Path, most: int) -> bytes:
    """Read a file, but no more than it may have."""
    try:
        with path.open("rb") as file:
            content = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    except OSError as error:
        raise BundleError(f"{path} could not be read: {error.strerror or error}.") from error
    if len(content) > most:
        raise BundleError(f"{path} has more than the {most} bytes that it may have. Take another copy.")
    return content
