"""`penstock export`: options that exclude each other, and a missing extra."""

from helpers.missing_packages import hide_package

MINE = ("net.safetensors", "-m", "mine:network", "-d", "mine:data", "-o", "x")


def test_int8_and_half_exclude_each_other(typed):
    error = typed("export", *MINE, "--int8", "--half", code=2).err
    assert "--int8" in error and "--half" in error


def test_without_onnx_the_error_names_the_extra(error_of, monkeypatch):
    hide_package(monkeypatch, "onnx_ir", users="penstock.export")
    error = error_of("export", *MINE)
    assert "MissingExtraError: onnx_ir" in error and "penstock[train,export]" in error
