"""Every op of the table of lowerings, fused: the CPU's bits. tests/sweep has the same with all dtypes and sizes."""

from collections.abc import Iterator

import pytest
import torch
from lowering_cases import FEW_SIZES, forms_of, info_calls, own_calls, problems, rows, shown

ROWS = rows()
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
# Composed of other ops, which are fused.
COMPOSED = {"selu", "isinf", "full_like", "ones_like", "zeros_like", "square", "__lshift__", "__rshift__"}
# Their numbers are checked by value and belong to the key, where the planner does not look for them (op_exceptions.def).
KEYED = {"celu", "elu_backward", "leaky_relu_backward", "hardtanh_backward", "smooth_l1_loss", "huber_loss"}
KEYED |= {"smooth_l1_loss_backward", "huber_loss_backward"}


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
    own = [dtype for dtype in DTYPES if dtype in ROWS[name]]
    assert own
    calls = [call for dtype in own for call in (*own_calls(name, dtype, FEW_SIZES), *info_calls(name, dtype, 3))]
    for call in calls:
        call.label = f"{name} {call.label}"
    found, fused = problems(calls)
    assert not found, shown(found)
    assert name in fused or name in COMPOSED | KEYED


@pytest.mark.parametrize("name", ["sigmoid", "maximum", "exp", "mul", "lerp"])
def test_threads_share_a_loop_like_the_cpu(name: str) -> None:
    torch.set_num_threads(2)
    found, fused = problems(list(own_calls(name, torch.float32, (32767, 32769, 100003))))
    assert not found, shown(found)
    assert name in fused
