"""Every program of models.py gives stock CPU's bits, in both modes. Measuring them is report.py's."""

import measure
import models
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import adaptive_eager


@pytest.mark.parametrize("mode", ["eager", "adaptive"])
@pytest.mark.parametrize("name", models.NAMES)
def test_model(name: str, mode: str, benchmark: BenchmarkFixture) -> None:
    with adaptive_eager.using_mode(mode):
        problem = benchmark.pedantic(measure.first_difference, (models.NAMES[name],), rounds=1)
    assert not problem
