"""What an op returns is learned the first time and known the next: sizes, strides and dtypes without running."""

from collections.abc import Callable

import pytest
import torch

import adaptive_eager
from adaptive_eager import config, flush, reset_stats, stats

Agree = Callable[..., None]


@pytest.fixture(autouse=True)
def adaptive(reset: None) -> None:
    adaptive_eager.set_mode("adaptive")


def learned(call: Callable[[], object]) -> int:
    """How many ops ran because they were seen for the first time."""
    flush()
    reset_stats()
    call()
    return stats().direct_reasons["first_seen"]


def test_op_runs_the_first_time_and_is_recorded_the_second() -> None:
    x = torch.ones(3, 211, device="neuron")
    assert learned(lambda: x.mul(x)) == 1
    assert stats().pending_ops == 0
    assert learned(lambda: x.mul(x)) == 0
    assert stats().pending_ops == stats().ops_recorded == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:, :5],
        lambda x: x.to(torch.float64),
        lambda x: x.t(),
        lambda x: x[::2],
        lambda x: x.expand(2, *x.shape),
    ],
    ids=["sizes", "dtype", "strides", "step", "rank"],
)
def test_other_metadata_is_learned_anew(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.ones(6, 223, device="neuron")
    y = change(x)
    for tensor in (x, x):
        tensor.square()
    assert learned(lambda: y.square()) == 1
    assert learned(lambda: y.square()) == 0


def test_other_numbers_are_not() -> None:
    x = torch.ones(227, device="neuron")
    x.mul(2.5)
    assert learned(lambda: [x.mul(i + 0.5) for i in range(20)]) == 0


def test_offset_is_not() -> None:
    x = torch.arange(454.0, device="neuron")
    x[:227].sin()
    assert learned(lambda: x[100:327].sin()) == 0
    assert x[100:327].sin().cpu().equal(torch.arange(454.0)[100:327].sin())


def test_other_attributes_are_learned_anew() -> None:
    x = torch.ones(3, 229, device="neuron")
    for _ in range(2):
        x.sum(0)
    assert learned(lambda: x.sum(1)) == 1
    assert learned(lambda: x.sum(0, keepdim=True)) == 1


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 3),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "stepped": lambda x: x[..., ::2],
    "expanded": lambda x: x[:1].expand(2, 4, 6, 8),
    "sliced": lambda x: x[:, 1:3],
    "empty": lambda x: x[:0],
}
OPS = {
    "unary": lambda x: x.exp(),
    "broadcast": lambda x: x + x[:, :1, :1],
    "comparison": lambda x: x > 2,
    "promotion": lambda x: x.to(torch.int32) / 2,
    "wrapped number": lambda x: x.to(torch.uint8) + 2.5,
    "sum": lambda x: x.sum((0, 2), keepdim=True),
    "max": lambda x: tuple(x.max(-1)),
    "softmax": lambda x: x.softmax(1),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "cat": lambda x: torch.cat([x, x], 1),
    "where": lambda x: torch.where(x > 1, x, 0),
    "clone": lambda x: x.clone(),
    "convert": lambda x: x.to(torch.bfloat16),
    "zeros_like": lambda x: torch.zeros_like(x),
    "sort": lambda x: tuple(x.sort(1)),
    "flip": lambda x: x.flip(0, 1),
    "cumsum": lambda x: x.cumsum(2),
    "batch norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True) if x.numel() else x,
    "foreach": lambda x: torch._foreach_mul([x, x.t() if x.dim() == 2 else x], 2.0),
}


@pytest.mark.parametrize("op", OPS)
def test_recorded_output_has_the_layout_that_the_kernel_gives(op: str, assert_same: Callable[..., None]) -> None:
    def flat(result: object) -> list[torch.Tensor]:
        return list(result) if isinstance(result, (tuple, list)) else [result]

    numbers = torch.arange(2 * 4 * 6 * 8.0).remainder(7).view(2, 4, 6, 8)
    for layout in LAYOUTS.values():
        expected = flat(OPS[op](layout(numbers)))
        x = numbers.to("neuron")
        for _ in range(3):
            found = flat(OPS[op](layout(x)))
            for a, b in zip(found, expected, strict=True):
                assert (a.shape, a.stride(), a.dtype, a.storage_offset()) == (
                    b.shape,
                    b.stride(),
                    b.dtype,
                    b.storage_offset(),
                )
            assert_same(found, expected)


def test_default_dtype_is_heeded() -> None:
    x = torch.arange(4, device="neuron")

    def dtypes() -> set[torch.dtype]:
        return {(x / 2).dtype, torch.full((2,), 0.5, device="neuron").dtype, x.float().mean().dtype, (x * 0.5).dtype}

    before = torch.get_default_dtype()
    try:
        for _ in range(3):
            assert dtypes() == {torch.float32}
        torch.set_default_dtype(torch.float64)
        for _ in range(3):
            assert dtypes() == {torch.float32, torch.float64}
    finally:
        torch.set_default_dtype(before)
    assert dtypes() == {torch.float32}


def test_bound_is_kept_and_answers_stay_right_beyond_it() -> None:
    config.max_metadata = 64
    for _ in range(2):
        for n in range(1, 200):
            x = torch.full((n,), 3.0, device="neuron")
            assert (x * x).sum().item() == 9 * n
    # The bound is below what the loop needs, so that the first shapes were forgotten.
    x = torch.full((1,), 3.0, device="neuron")
    assert learned(lambda: x * x) == 1
