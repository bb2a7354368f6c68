"""temporary_mode: every submodule gets its own mode back."""

import contextlib

import pytest

from helpers.zoo import sequential
from penstock.gating.temporary_mode import temporary_mode


@pytest.mark.parametrize("training", [True, False])
def test_every_submodule_gets_its_own_mode_back_even_after_an_error(training):
    model = sequential().train()
    model[1].eval()
    before = [part.training for part in model.modules()]
    with contextlib.suppress(ZeroDivisionError), temporary_mode(model, training=training):
        assert {part.training for part in model.modules()} == {training}
        raise ZeroDivisionError
    assert [part.training for part in model.modules()] == before
