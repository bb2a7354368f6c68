"""The folder of a training: whose it is, where it goes on, its logs and checkpoints."""

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
from penstock.runtime.files import make_folder, write_atomically


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
        """Make the folder this run's; return the checkpoint to go on from, if there is one."""
        note = self.folder / "run.json"
        mine = json.loads(json.dumps(settings))
        if self.last.exists():
            try:
                before = json.loads(note.read_text())
                differing = [key for key in mine if before.get(key) != mine[key]]
            except (OSError, ValueError, AttributeError) as error:
                raise TrainingError(
                    f"{note} cannot be read ({error}), so nobody knows whose checkpoints these are. Choose another "
                    "folder, or delete this one to start anew."
                ) from error
            if differing:
                raise TrainingError(
                    f"{self.folder} holds another run: it differs in {', '.join(differing)}. Choose another folder, or "
                    "delete this one to start anew."
                )
        write_atomically(note, json.dumps(mine, indent=1).encode())
        return str(self.last) if self.last.exists() else None

    def checkpoints(self) -> ModelCheckpoint:
        """Return what writes best and last."""
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
        """Return what writes logs for TensorBoard; CSV is written by `log`."""
        return [TensorBoardLogger(self.folder, name="", version="tensorboard")]

    def log(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Write all epochs as CSV: those before a kill too, which Lightning's own logger would drop."""
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        make_folder(self.folder / "csv")
        write_atomically(self.folder / "csv" / "metrics.csv", text.getvalue().encode())


@contextmanager
def refusals(run: RunDirectory | None) -> Iterator[None]:
    """Turn what can go wrong with a folder, and Lightning's way to be interrupted, into what a caller expects."""
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
            f"{run.folder} could not be written: {error.strerror}. The last whole checkpoint is kept: free some space "
            "and start the same training again, and it goes on from there."
        ) from error
    except (RuntimeError, EOFError, KeyError) as error:
        if run is None or ("PytorchStreamReader" not in str(error) and not isinstance(error, EOFError)):
            raise
        raise TrainingError(
            f"{run.last} is damaged: {error}. Delete it to start anew; best.ckpt beside it may be whole."
        ) from error
