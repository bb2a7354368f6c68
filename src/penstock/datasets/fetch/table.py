"""The data sets that `penstock data` knows: layouts on disk, sources, sizes and checksums.

The checksums of Speech Commands are those that torchaudio uses.
"""

from functools import partial

from penstock.datasets.fetch.catalogue import Catalogue, CatalogueEntry, FolderFormat, count_loaded
from penstock.datasets.fetch.download import Checksum, Download
from penstock.datasets.fetch.locations import DatasetLayout, DatasetSpec
from penstock.datasets.fetch.sources import OfficialArchive, PythonPackage
from penstock.datasets.speech_commands import LISTS, count_clips


def _speech_commands(version: str, sha256: str, size_bytes: int) -> DatasetSpec:
    folder = f"speech_commands_v{version}"
    url = f"http://download.tensorflow.org/data/{folder}.tar.gz"
    archive = Download(url, f"{folder}.tar.gz", Checksum("sha256", sha256), size_bytes)
    layout = DatasetLayout("official", tuple(LISTS.values()), inner=folder)
    return DatasetSpec(f"speech-commands-v{version}", (layout,), (OfficialArchive(archive, folder),))


SPEECH_COMMANDS_1 = _speech_commands(
    "0.01", "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d", 1_489_096_277
)
SPEECH_COMMANDS_2 = _speech_commands(
    "0.02", "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58", 2_428_923_189
)

WRIST = DatasetSpec(
    "wrist",
    (DatasetLayout("npy", ("watch_dataset.npy",), archive="watch_dataset.npy"),),
    (PythonPackage("seglearn", "data"),),
)

_count_wrist = partial(count_loaded, "penstock.datasets.wrist:wrist")
_count_clips_1, _count_clips_2 = partial(count_clips, expected=64_721), partial(count_clips, expected=105_829)

CATALOGUE = Catalogue(
    "penstock data",
    (
        CatalogueEntry(WRIST, "81 minutes of 7 exercises, 6 axes, 50 Hz", "BSD", "18 MB", _count_wrist),
        CatalogueEntry(
            SPEECH_COMMANDS_1, "65,000 spoken words of 30, 1 s each", "CC BY 4.0", "2.1 GB", _count_clips_1, quick=True
        ),
        CatalogueEntry(
            SPEECH_COMMANDS_2, "106,000 spoken words of 35, 1 s each", "CC BY 4.0", "3.4 GB", _count_clips_2, quick=True
        ),
    ),
    {
        "image-folder": FolderFormat(
            "images", "penstock.datasets.image_folder", "penstock.datasets.image_files:count_images"
        ),
        "sound-folder": FolderFormat(
            "sounds", "penstock.datasets.sound_folder", "penstock.datasets.sound_files:count_sounds"
        ),
    },
)
