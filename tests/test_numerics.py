"""The table of lowerings, and bits that depend on more than an op's name: GELU through oneDNN and through ATen."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fusion import check, compare, forced, forget, loops

from adaptive_eager._lowerings import base_name, lowerings, without_lowering

F = torch.nn.functional
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    5.5,
    -5.6,
    6.0,
    1e-20,
    -1e-38,
    1e-40,
    -1e-45,
    88.0,
    -1e4,
    6e4,
    float("inf"),
    -float("inf"),
]
TYPES = [torch.float32, torch.bfloat16, torch.float16]
VECTORS = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
ONEDNN = (
    VECTORS
    and torch.backends.mkldnn.is_available()
    and not {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} & os.environ.keys()
)


@pytest.fixture
def fusing(reset: None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with forced(), torch.no_grad():
        forget()
        yield
    torch.set_num_threads(before)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Of every magnitude, and what is special."""
    x = torch.randn(shape) * torch.exp2(torch.randint(-8, 5, shape).float())
    at = torch.randint(0, 10, shape)
    special = torch.tensor([*SPECIAL, float("nan")])
    return torch.where(at == 0, special[torch.randint(0, len(special), shape)], x).to(dtype)


def fused(found: list[dict[str, Any]]) -> bool:
    return any("gelu" in name for name in loops(found))


# The table


@pytest.mark.parametrize("everything", [False, True])
def test_table_names_each_op_once_and_says_how_its_bits_were_matched(everything: bool) -> None:
    table = lowerings(everything)
    assert len({row.op for row in table}) == len(table) > 100
    assert not [row.op for row in table if not row.how or not row.types]
    assert all(row.cut is None or row.cut in (4, 8, 16, 32, 64) for row in table)


def test_table_names_ops_of_pytorch() -> None:
    packets = {base_name(name) for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    assert not [row.op for row in lowerings() if row.op not in packets]


def test_ops_without_a_row_are_told_apart_from_those_with_one() -> None:
    assert "lgamma" in without_lowering()
    assert not {row.op for row in lowerings()} & set(without_lowering())


def test_rows_are_the_same_on_every_machine() -> None:
    assert [(row.op, row.types, row.how) for row in lowerings()] == [
        (row.op, row.types, row.how) for row in lowerings(everything=True)
    ]


# GELU


@pytest.mark.parametrize("size", [1, 2, 3, 15, 16, 17, 31, 33, 64, 100, 1000, 4097])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gelu(fusing: None, dtype: torch.dtype, approximate: str, size: int) -> None:
    found = check(lambda x: F.gelu(x + x, approximate=approximate) * 2, lambda: [values(size, dtype=dtype)])
    if dtype == torch.float32 and approximate == "none":
        assert fused(found) == (ONEDNN and size > 1)
    elif approximate == "tanh" and size > 1:
        assert fused(found) == VECTORS


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 1000, 4097])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gelu_backward(fusing: None, dtype: torch.dtype, approximate: str, size: int) -> None:
    def program(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.gelu_backward(grad * 2, x, approximate=approximate) + grad

    found = check(program, lambda: [values(size, dtype=dtype), values(size, dtype=dtype)])
    if dtype == torch.float32 and approximate == "none":
        assert fused(found) == (ONEDNN and size > 1)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gelu_of_every_half(fusing: None, dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15).to(torch.int16)

    def inputs() -> list[torch.Tensor]:
        return [every.view(dtype) if dtype != torch.float32 else values(2**16)]

    check(lambda x: F.gelu(x), inputs)
    check(lambda x: torch.ops.aten.gelu_backward(x.flip(0), x), inputs)


def test_gelu_in_place_and_of_a_slice(fusing: None) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        torch.ops.aten.gelu_(x[3:])
        return [F.gelu(x[5:77]) + 1, F.gelu(x.view(11, 17)) * 2]

    assert fused(check(program, lambda: [values(187)])) == ONEDNN


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_that_is_not_contiguous(fusing: None, approximate: str) -> None:
    def program(x: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
        x, grad = x * 2, grad * 2
        back = torch.ops.aten.gelu_backward
        return [
            F.gelu(x.t(), approximate=approximate),
            F.gelu(x[:, ::2], approximate=approximate),
            F.gelu(x[:, :20], approximate=approximate),
            back(grad.t(), x.t(), approximate=approximate),
            back(grad.t().contiguous().t(), x, approximate=approximate),
            back(grad, x.t().contiguous().t(), approximate=approximate),
            back(grad[:1, :1].expand(40, 40), x, approximate=approximate),
        ]

    check(program, lambda: [values(40, 40), values(40, 40)])


@pytest.mark.filterwarnings("ignore:TF32")
def test_gelu_without_onednn(fusing: None) -> None:
    for enabled in (False, True, False):
        with torch.backends.mkldnn.flags(enabled=enabled):
            forget()
            found = check(lambda x: F.gelu(x + 1), lambda: [values(1000)])
        assert fused(found) == (ONEDNN and enabled)


@pytest.mark.parametrize("size", [16385, 20000, 65536, 70001, 98304])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_on_two_threads(fusing: None, approximate: str, size: int) -> None:
    torch.set_num_threads(2)
    forget()
    check(lambda x: F.gelu(x, approximate=approximate) + x, lambda: [values(size)])


def test_gelu_in_a_network(fusing: None) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.Linear(40, 3), torch.nn.GELU("tanh")
    )
    moved = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.Linear(40, 3), torch.nn.GELU("tanh"))
    moved.load_state_dict(network.state_dict())
    moved.to("neuron")
    with torch.enable_grad():
        for _ in range(6):
            x = values(10, 24).nan_to_num(0, 1, -1)
            for model, on in ((network, x), (moved, x.to("neuron"))):
                model.zero_grad()
                model(on).sum().backward()
            for a, b in zip(moved.parameters(), network.parameters(), strict=True):
                compare(a.grad, b.grad, "gradient")


# Numbers


@pytest.mark.parametrize("name", ["celu", "elu_backward", "leaky_relu_backward", "huber_loss", "hardtanh_backward"])
@pytest.mark.parametrize("number", [0.3, 2, 1e-3])
def test_number_that_belongs_to_the_key_is_written_into_the_loop(fusing: None, name: str, number: float) -> None:
    aten = torch.ops.aten

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x * 2
        if name == "celu":
            return aten.celu(x, number) + y
        if name == "elu_backward":
            return aten.elu_backward(x, number, 0.7, 0.9, False, y) + y
        if name == "leaky_relu_backward":
            return aten.leaky_relu_backward(x, y, number, False) + y
        if name == "hardtanh_backward":
            return aten.hardtanh_backward(x, y, -number, number) + y
        return aten.huber_loss(x, y, 0, number) + y

    found = check(program, lambda: [values(999), values(999)])
    assert VECTORS is False or any(name in loop for loop in loops(found))


def test_number_that_belongs_to_the_key_may_change_the_type(fusing: None) -> None:
    check(lambda x: [x.clamp(-0.3, 0.7), x.clamp(-2, 3), x.clamp(max=0.5) + 1], lambda: [torch.arange(-9, 9)])


def test_quotient_of_integers_that_is_truncated(fusing: None) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.div(a + 1, b, rounding_mode="trunc") * 2

    def inputs() -> list[torch.Tensor]:
        return [torch.randint(-(2**62), 2**62, (500,)), torch.randint(1, 9, (500,))]

    check(program, inputs)


# Powers


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3, -1, 0.25])
@pytest.mark.parametrize("dtype", [*TYPES, torch.float64], ids=str)
def test_power(fusing: None, dtype: torch.dtype, exponent: float) -> None:
    found = check(lambda x: (x + x).pow(exponent) * 3, lambda: [values(3000, dtype=dtype)])
    if exponent == 0.5 and dtype == torch.bfloat16:
        assert any("pow" in name for name in loops(found))
