"""Arguments that name models, data, shapes, cuts and labels."""

import pytest

from penstock.cli.arguments import load_data, load_model, select_split
from penstock.errors import DataError


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("mine", "'mine': expected package.module:function"),
        ("nothere:net", "no module 'nothere'"),
        ("mine:net", "mine has no 'net'"),
        (".mine:network", "'.mine:network': expected package.module"),
        ("mine:draw", "draw(seed, n)"),
        ("mine:Net", "Net(in_features: int, "),
        ("broken:network", "AttributeError: module 'math' has no attribute 'tau_and_a_half' (broken.py, line 7)"),
        ("unfinished:network", "SyntaxError: invalid syntax (unfinished.py, line 1)"),
        ("mine:number", "got int"),
    ],
)
def test_a_wrong_model_is_an_error(error_of, model, text):
    assert text in error_of("cuts", model, "--shape", "6")


@pytest.mark.parametrize(("shape", "text"), [("six", "--shape six --dtype float32"), ("7", "got (1, 7)")])
def test_a_wrong_shape_is_an_error(error_of, shape, text):
    assert text in error_of("cuts", "mine:network", "--shape", shape)


def test_data_without_train_are_an_error(error_of):
    assert "'mine:no_train' has no 'train'" in error_of("train", "-m", "mine:network", "-d", "mine:no_train", "-o", "x")


def test_a_missing_network_file_is_an_error(error_of):
    error = error_of("evaluate", "no.safetensors", "-m", "mine:network", "-d", "mine:data")
    assert "StorageError" in error and "no.safetensors" in error


def test_an_error_inside_the_users_function_is_raised_as_it_is(home, monkeypatch):
    """Its author needs the traceback."""
    (home / "fails.py").write_text("def network():\n    return len(5)\n")
    monkeypatch.syspath_prepend(home)
    with pytest.raises(TypeError, match="'int' has no len"):
        load_model("fails:network")


@pytest.mark.parametrize("split", ["validation", "tset"])
def test_a_split_that_is_none_counts_as_missing(split):
    splits = {"train": 1, "validation": None, "test": 2, "class_names": ["a", "b"]}
    with pytest.raises(DataError, match=rf"'{split}', only train, test"):
        select_split(splits, split)
    assert select_split(splits, "test") == 2


def test_a_train_split_that_is_none_counts_as_missing(home, monkeypatch):
    (home / "empty.py").write_text("def data():\n    return {'train': None, 'test': 1}\n")
    monkeypatch.syspath_prepend(home)
    with pytest.raises(DataError, match="'empty:data' has no 'train'"):
        load_data("empty:data")
