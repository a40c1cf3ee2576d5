"""Kernels that stand before autograd's: what autograd does is done, as on the CPU."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import adaptive_eager


@pytest.fixture(autouse=True)
def adaptive() -> Iterator[None]:
    with adaptive_eager.using_mode("adaptive"):
        yield


def outcome(program: Callable[[torch.Tensor], Any], device: str) -> Any:
    x = torch.arange(1.0, 5.0, device=device)
    results = []
    for _ in range(4):  # learned, recorded, replayed
        try:
            results.append(program(x.clone()))
        except RuntimeError as error:
            results.append(str(error))
    return results


def in_place_versions(x: torch.Tensor) -> list[int]:
    view = x[1:]
    x.add_(1).mul_(x)
    view.clamp_(0, 2)
    with torch.no_grad():
        x.sqrt_()
        torch._foreach_add_([x, view], 1.0)
        torch.add(x, x, out=x)
    with torch.inference_mode():
        x.neg_()
    return [x._version, view._version, torch.zeros(2, device=x.device).zero_()._version]


def saved_tensor_changed(x: torch.Tensor) -> None:
    x.requires_grad_()
    y = x.exp()
    z = y * 2
    with torch.no_grad():
        y.add_(1)
    z.sum().backward()


def leaf_changed(x: torch.Tensor) -> None:
    x.requires_grad_().add_(1)


def view_of_a_leaf_changed(x: torch.Tensor) -> None:
    x.requires_grad_()[1:].mul_(2)


def leaf_changed_without_gradients(x: torch.Tensor) -> list[Any]:
    x.requires_grad_()
    with torch.no_grad():
        x.mul_(3)
    (x * x).sum().backward()
    return [x._version, x.grad.tolist()]


def inference_tensor_changed(x: torch.Tensor) -> None:
    with torch.inference_mode():
        y = x + 1
    y.add_(x)


def gradient_of_one_operand(x: torch.Tensor) -> list[Any]:
    weight = torch.full((4,), 2.0, device=x.device, requires_grad=True)
    y = x * weight
    ((y + x).relu() / 3).sum().backward()
    return [y.requires_grad, (x + 1).requires_grad, weight.grad.tolist()]


def forward_gradient_without_backward(x: torch.Tensor) -> list[Any]:
    with torch.no_grad(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        primal, tangent = forward_ad.unpack_dual((dual * x).tanh())
        return [primal.tolist(), tangent.tolist()]


def gradient_of_a_list(x: torch.Tensor) -> list[Any]:
    x.requires_grad_()
    first, second = torch._foreach_mul([x, x * 2], 3.0)
    torch.cat([first, second]).sum().backward()
    return [x.grad.tolist()]


def transforms(x: torch.Tensor) -> list[Any]:
    def f(v: torch.Tensor) -> torch.Tensor:
        return (v * v + v).tanh().sum()

    return [
        torch.func.grad(f)(x).tolist(),
        torch.func.vmap(lambda v: v * 2 + 1)(x).tolist(),
        torch.func.jvp(f, (x,), (x,))[1].tolist(),
        torch.func.vmap(torch.func.grad(f))(x.view(2, 2)).tolist(),
    ]


def lazy_conjugate(x: torch.Tensor) -> list[Any]:
    z = torch.complex(x, x).conj()
    return [(z * z + 1).tolist(), (z.imag + x).tolist()]


def anomaly(x: torch.Tensor) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        (x.requires_grad_() - 9).sqrt().sum().backward()


PROGRAMS = [
    in_place_versions,
    saved_tensor_changed,
    leaf_changed,
    view_of_a_leaf_changed,
    leaf_changed_without_gradients,
    inference_tensor_changed,
    gradient_of_one_operand,
    forward_gradient_without_backward,
    gradient_of_a_list,
    transforms,
    lazy_conjugate,
    anomaly,
]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.filterwarnings("ignore:Error detected in")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_autograd_sees_what_it_sees_on_the_cpu(program: Callable[[torch.Tensor], Any]) -> None:
    expected, found = outcome(program, "cpu"), outcome(program, "neuron")
    assert [str(f).replace("neuronFloatType", "torch.FloatTensor") for f in found] == [str(e) for e in expected]


def test_modes_and_subclasses_see_every_call() -> None:
    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func._schema.name)
            return func(*args, **kwargs or {})

    x = torch.ones(3, device="neuron")
    for _ in range(3):
        seen.clear()
        with Mode(), torch.no_grad():
            x.add(1).mul_(2).relu()
        assert seen == ["aten::add", "aten::mul_", "aten::relu"]
