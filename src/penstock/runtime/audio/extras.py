"""What a device installs only where it is needed."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.errors import MissingExtraError

_SYSTEM = {"sounddevice": "PortAudio (on Debian: libportaudio2)", "soundfile": "libsndfile (on Debian: libsndfile1)"}


def needed(module: str, extra: str) -> Any:
    """Import a module that only an extra brings.

    Raises:
        MissingExtraError: when it is not installed, or the library of the system that it uses is not.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this takes {module!r}, which is not installed: pip install 'penstock[{extra}]' ({error})."
        ) from error
    except OSError as error:  # the package is there and its library is not
        raise MissingExtraError(
            f"{module!r} is installed and its library is not ({error}): install {_SYSTEM.get(module, 'it')} with the "
            f"system's packages, or try pip install --force-reinstall 'penstock[{extra}]'."
        ) from error
