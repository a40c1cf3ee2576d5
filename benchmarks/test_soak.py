"""The long runs of soak.py, each once."""

from collections.abc import Callable

import pytest
import soak
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.parametrize("name", soak.CHECKS)
def test_soak(name: str, benchmark: BenchmarkFixture, note: Callable[[str], None]) -> None:
    with soak.adaptive():
        fine, text = benchmark.pedantic(soak.CHECKS[name], rounds=1)
    note(f"{name}: {text}")
    assert fine, text
