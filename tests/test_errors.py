import json
import sys

import pytest

from penstock import errors
from penstock.errors import MissingExtraError, PenstockError, require


def test_an_installed_module_is_returned():
    assert require("json", extra="run") is json


def test_a_missing_module_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"^onnxruntime .*'penstock\[run\]'$"):
        require("onnxruntime", extra="run")


def test_a_missing_dependency_of_our_own_module_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "penstock.runtime.islands.links.grpc", raising=False)
    with pytest.raises(MissingExtraError, match=r"^grpc is not .*\[links\]"):
        require("penstock.runtime.islands.links.grpc", extra="links")


def test_a_missing_module_of_our_own_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError) as caught:
        require("penstock.runtime.nothing", extra="run")
    assert not isinstance(caught.value, PenstockError)


def test_a_missing_system_library_is_named(monkeypatch):
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "sounddevice":
                raise OSError("PortAudio library not found")

    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(MissingExtraError, match=r"PortAudio library not found.*libportaudio2.*penstock\[microphone\]"):
        require("sounddevice", extra="microphone")


def test_every_error_is_a_penstock_error_and_explains_itself():
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) >= 16
    for one in classes:
        assert issubclass(one, PenstockError) and one.__doc__ and one.__name__.endswith("Error")
