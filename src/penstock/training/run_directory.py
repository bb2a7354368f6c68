"""The run directory: settings, logs and checkpoints of one training run, from which it can be resumed."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from penstock.errors import TrainingError
from penstock.runtime.files import write_atomically

FORMAT = 4
"""The format of run.json and the checkpoints next to it; format 1 had no number."""


@dataclass(frozen=True)
class RunDirectory:
    """A folder that belongs to one run."""

    folder: Path
    validated: bool

    @property
    def last(self) -> Path:
        """The checkpoint of the last epoch."""
        return self.folder / "last.ckpt"

    @property
    def best(self) -> Path:
        """The checkpoint with the lowest validation loss."""
        return self.folder / "best.ckpt"

    def claim(self, settings: dict[str, Any]) -> str | None:
        """Write the settings into the folder; return the checkpoint to resume from, if there is one.

        Raises:
            TrainingError: if the folder holds a run with other settings or of another format.
        """
        claim_settings(self.folder / "run.json", settings, resumed=self.last.exists())
        return str(self.last) if self.last.exists() else None

    def recorded(self, setting: str) -> Any:
        """Return a setting of the run to be resumed; None if there is none."""
        try:
            return json.loads((self.folder / "run.json").read_text())[setting] if self.last.exists() else None
        except (OSError, ValueError, TypeError, KeyError):
            return None  # `claim` says what is wrong with it

    def checkpoints(self) -> ModelCheckpoint:
        """Return the callback that writes the best and the last checkpoint."""
        return ModelCheckpoint(
            dirpath=self.folder,
            filename="best",
            monitor="val/loss" if self.validated else None,
            save_last=True,
            save_top_k=1,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )

    def loggers(self) -> list[Logger]:
        """Return the TensorBoard logger; `log` writes the CSV file."""
        return [TensorBoardLogger(self.folder, name="", version="tensorboard")]

    def log(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Write all epochs as CSV, also those before a resume, which Lightning's CSV logger would drop."""
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_atomically(self.folder / "csv" / "metrics.csv", text.getvalue().encode())


def claim_settings(path: Path, settings: dict[str, Any], *, resumed: bool) -> None:
    """Write the settings of a run into its folder.

    Raises:
        TrainingError: if a run is resumed that has other settings or is of another format.
    """
    settings = json.loads(json.dumps({"format": FORMAT} | settings))
    if resumed:
        _check_same_run(path, settings)
    write_atomically(path, json.dumps(settings, indent=1).encode())


def _check_same_run(path: Path, settings: dict[str, Any]) -> None:
    folder, advice = path.parent, "Choose another folder, or delete this one to start over."
    try:
        found = json.loads(path.read_text())
        version = found.get("format", 1)
        differing = [key for key in settings if found.get(key) != settings[key]]
    except (OSError, ValueError, AttributeError) as error:
        raise TrainingError(f"cannot resume the run: {path} cannot be read ({error}). {advice}") from error
    if version != FORMAT:
        raise TrainingError(
            f"cannot resume the run in {folder}: expected format {FORMAT}, got format {version}, of another version "
            f"of Penstock. {advice}"
        )
    if differing:
        raise TrainingError(f"{folder} holds another run, which differs in {', '.join(differing)}. {advice}")


@contextmanager
def storage_errors(run: RunDirectory | None) -> Iterator[None]:
    """Turn a full disk or a damaged checkpoint into a TrainingError, and Lightning's exit into a KeyboardInterrupt."""
    try:
        yield
    except SystemExit as exit_:
        if isinstance(exit_.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from exit_
        raise
    except OSError as error:
        if run is None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES):
            raise
        raise TrainingError(
            f"cannot write to {run.folder}: {error.strerror}. The last complete checkpoint is kept: free some space "
            "and start the same training again to resume."
        ) from error
    except (RuntimeError, EOFError, KeyError) as error:
        if run is None or ("PytorchStreamReader" not in str(error) and not isinstance(error, EOFError)):
            raise
        raise TrainingError(f"{run.last} is damaged: {error}. Delete it to start over, or use best.ckpt.") from error
