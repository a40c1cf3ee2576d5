"""Whole programs against stock CPU eager."""

from collections.abc import Callable

import models
import pytest


@pytest.mark.parametrize("name", models.NAMES)
def test_model(name: str, versus: Callable[..., object]) -> None:
    versus(models.NAMES[name], rounds=9)
