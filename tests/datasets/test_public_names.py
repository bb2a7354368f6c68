"""`penstock.datasets` offers its loaders as functions, and imports nothing heavy for it."""

import subprocess
import sys
from pathlib import Path

import pytest

import penstock.datasets
from helpers.data_files import images, sounds
from penstock.datasets import image_folder, sound_folder


def test_the_loaders_are_functions_of_the_package(tmp_path: Path) -> None:
    images(tmp_path / "images")
    sounds(tmp_path / "sounds")
    assert penstock.datasets.image_folder(tmp_path / "images", size=4).class_names == ("background", "bell")
    assert penstock.datasets.sound_folder(tmp_path / "sounds").class_names == ("background", "bell")
    assert (image_folder, sound_folder) == (penstock.datasets.image_folder, penstock.datasets.sound_folder)
    assert {"image_folder", "sound_folder"} <= set(dir(penstock.datasets))
    with pytest.raises(AttributeError, match="picture_folder"):
        _ = penstock.datasets.picture_folder


def test_importing_the_package_loads_no_torch() -> None:
    code = "import penstock.datasets, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_package_works_without_the_reproduction(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['reproduction'] = None\n"
        "from penstock.datasets.fetch.table import CATALOGUE\n"
        "print([row.name for row in CATALOGUE.listing()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['wrist', 'speech-commands-v0.01', 'speech-commands-v0.02']\n"
