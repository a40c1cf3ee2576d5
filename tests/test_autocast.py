"""torch.autocast("neuron") gives what torch.autocast("cpu") gives."""

import copy

import pytest
import torch
from torch import nn

DTYPES = [torch.bfloat16, torch.float16]


def test_same_ops_are_cast_as_on_the_cpu() -> None:
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    assert set(registered("AutocastPrivateUse1")) == set(registered("AutocastCPU"))


def test_default_dtype_is_the_cpus() -> None:
    with torch.autocast("neuron"):
        assert torch.get_autocast_dtype("neuron") == torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert torch.is_autocast_enabled("neuron")
    assert not torch.is_autocast_enabled("neuron")


def test_supported_dtypes_are_the_cpus() -> None:
    assert torch.neuron.get_amp_supported_dtype() == DTYPES
    assert torch.neuron.is_bf16_supported()
    with pytest.warns(UserWarning, match="target dtype is not supported"), torch.autocast("neuron", torch.float64):
        assert not torch.is_autocast_enabled("neuron")


CASES = {
    "lower precision: mm": lambda a, b: torch.mm(a, b),
    "lower precision: linear": lambda a, b: nn.functional.linear(a, b, b[0]),
    "lower precision: matmul of halves": lambda a, b: a.half() @ b.bfloat16(),
    "lower precision: attention": lambda a, b: nn.functional.scaled_dot_product_attention(a[None], b[None], b[None]),
    "float32: mse_loss": lambda a, b: nn.functional.mse_loss(a.bfloat16(), b.bfloat16()),
    "float32: binary_cross_entropy": lambda a, b: nn.functional.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
    "float32: prod": lambda a, b: a.bfloat16().prod(),
    "promoted: cat": lambda a, b: torch.cat([a, b.bfloat16()]),
    "promoted: stack": lambda a, b: torch.stack([a @ b, b @ a]),
    "untouched: add": lambda a, b: a.bfloat16() + b.bfloat16(),
    "untouched: softmax": lambda a, b: torch.softmax(a.bfloat16(), -1),
    "untouched: float64": lambda a, b: torch.mm(a.double(), b.double()),
    "untouched: in place": lambda a, b: a.clone().addmm_(a, b),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_op_is_cast_as_on_the_cpu(case: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(8, 8), torch.randn(8, 8)

    def run(device: str) -> torch.Tensor:
        with torch.autocast(device, dtype):
            return CASES[case](a.to(device), b.to(device))

    expected, got = run("cpu"), run("neuron")
    assert got.device.type == "neuron" and got.dtype == expected.dtype
    assert torch.equal(got.cpu(), expected)


def test_disabled_region_casts_nothing() -> None:
    a = torch.ones(4, 4, device="neuron")
    with torch.autocast("neuron"), torch.autocast("neuron", enabled=False):
        assert (a @ a).dtype == torch.float32


def test_weights_are_cast_once() -> None:
    weight = torch.ones(4, 4, device="neuron", requires_grad=True)
    x = torch.ones(4, 4, device="neuron")
    with torch.autocast("neuron"):
        first, second = (x @ weight).grad_fn, (x @ weight).grad_fn
    cast = [next(f for f, _ in node.next_functions if f is not None) for node in (first, second)]
    assert cast[0] is cast[1]


def test_training_step_has_the_cpus_bits() -> None:
    torch.manual_seed(1)
    cpu = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    ours = copy.deepcopy(cpu).to("neuron")
    x, y = torch.randn(8, 16), torch.randint(4, (8,))
    for model, device in ((cpu, "cpu"), (ours, "neuron")):
        with torch.autocast(device):
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
    for a, b in zip(cpu.parameters(), ours.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad.cpu())
