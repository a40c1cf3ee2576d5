"""What fails although nothing could be seen of it when it was recorded: the error comes at the next read."""

from collections.abc import Callable

import pytest
import torch

import adaptive_eager
from adaptive_eager import _native, flush


@pytest.fixture(autouse=True)
def adaptive(reset: None) -> None:
    adaptive_eager.set_mode("adaptive")


@pytest.fixture
def failing(little_memory: Callable[[], None]) -> dict[str, torch.Tensor]:
    """Recorded: an op that will find no memory for its 4 MiB, one that needs its result, and others."""
    x, big = torch.ones(8, device="neuron"), torch.ones(1 << 20, device="neuron")

    def program() -> dict[str, torch.Tensor]:
        before = x * 3
        failed = big * 2
        needing = failed[:8] + x
        after = before - 1
        return {"before": before, "failed": failed, "needing": needing, "after": after, "x": x, "big": big}

    for _ in range(3):
        program()
        flush()
    little_memory()
    return program()


def test_fault_is_raised_at_the_read_and_names_its_op(failing: dict[str, torch.Tensor]) -> None:
    for _ in range(2):  # not only the first read
        with pytest.raises(torch.OutOfMemoryError, match=r"aten::mul\.Tensor failed when its recorded region ran"):
            failing["failed"].tolist()


def test_fault_poisons_what_needs_it(failing: dict[str, torch.Tensor]) -> None:
    flush_fails(failing)
    with pytest.raises(torch.OutOfMemoryError, match=r"aten::mul\.Tensor failed"):
        failing["needing"].tolist()
    with pytest.raises(torch.OutOfMemoryError, match=r"aten::mul\.Tensor failed"):
        failing["failed"].neg()
    with pytest.raises(torch.OutOfMemoryError, match=r"aten::mul\.Tensor failed"):
        failing["failed"].add_(1)


def test_fault_leaves_the_rest_unharmed(failing: dict[str, torch.Tensor]) -> None:
    flush_fails(failing)
    assert failing["before"].tolist() == [3.0] * 8
    assert failing["after"].tolist() == [2.0] * 8
    assert (failing["x"] + 1).tolist() == [2.0] * 8


def test_same_region_works_again_once_there_is_memory(failing: dict[str, torch.Tensor]) -> None:
    flush_fails(failing)
    _native.lib.ae_memory_set_limit(0)
    assert ((failing["big"] * 2)[:8] + failing["x"]).tolist() == [3.0] * 8


def flush_fails(failing: dict[str, torch.Tensor]) -> None:
    with pytest.raises((torch.OutOfMemoryError, adaptive_eager.AdaptiveEagerError), match="out of memory"):
        flush()
