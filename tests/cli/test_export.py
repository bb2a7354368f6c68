"""`penstock export`: options that exclude each other, and a missing extra."""

import sys

MINE = ("net.safetensors", "-m", "mine:network", "-d", "mine:data", "-o", "x")


def test_int8_and_half_exclude_each_other(typed):
    error = typed("export", *MINE, "--int8", "--half", code=2).err
    assert "--int8" in error and "--half" in error


def test_without_onnx_the_error_names_the_extra(error_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    for name in [name for name in sys.modules if name.startswith("penstock.export")]:
        monkeypatch.delitem(sys.modules, name)
    error = error_of("export", *MINE)
    assert "MissingExtraError: onnx_ir" in error and "penstock[train,export]" in error
