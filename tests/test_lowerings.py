"""Every op of the table of lowerings, fused: the CPU's bits. tests/sweep has it with all dtypes and sizes."""

from collections.abc import Iterator

import pytest
import torch
from lowering_cases import FEW_SIZES, forms_of, info_calls, own_calls, problems, rows, shown, supports

ROWS = rows()
DTYPES = (torch.float32, torch.bfloat16, torch.int64)
# Composed of other ops, which are fused.
COMPOSED = {"_to_copy", "selu", "isinf", "full_like", "ones_like", "zeros_like", "square", "__lshift__", "__rshift__"}


@pytest.fixture(autouse=True)
def one_thread(reset: None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_row_has_calls() -> None:
    assert [name for name in ROWS if not forms_of(name)] == []


@pytest.mark.parametrize("name", ROWS)
def test_lowering_gives_the_bits_of_the_cpu(name: str) -> None:
    calls = []
    for dtype in DTYPES:
        if dtype not in ROWS[name] and not supports(name, dtype):
            continue  # some kernels divide by zero when they are given integers, and end the process
        sizes = FEW_SIZES if dtype.is_floating_point else (33,)
        calls += [
            *own_calls(name, dtype, sizes, dtype.is_floating_point),
            *info_calls(name, dtype, 2 if dtype == torch.float32 else 1),
        ]
    for call in calls:
        call.label = f"{name} {call.label}"
    found, fused = problems(calls)
    assert not found, shown(found)
    assert name in fused or name in COMPOSED


@pytest.mark.parametrize("name", ["sigmoid", "maximum", "exp", "mul", "lerp"])
def test_threads_share_a_loop_like_the_cpu(name: str) -> None:
    torch.set_num_threads(2)
    found, fused = problems(list(own_calls(name, torch.float32, (32767, 32769, 100003))))
    assert not found, shown(found)
    assert name in fused
