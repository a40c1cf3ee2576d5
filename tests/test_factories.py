"""Tensors out of nothing: metadata, values, and memory that comes at first use."""

from collections.abc import Callable

import pytest
import torch

Agree = Callable[..., None]

pytestmark = pytest.mark.usefixtures("reset", "mode")

FACTORIES = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(3, dtype=torch.int16, device=d),
    "full": lambda d: [torch.full((2,), value, device=d) for value in (1.5, 7, True, 2j)],
    "arange": lambda d: [torch.arange(*r, device=d) for r in ((5,), (2, 9), (0, 1, 0.25), (5, 0, -2), (0.0, 3.0))],
    "large arange": lambda d: torch.arange(2**53, 2**53 + 5, device=d),
    "linspace": lambda d: [torch.linspace(0, 1, n, device=d) for n in (0, 1, 2, 50)],
    "logspace": lambda d: torch.logspace(0, 2, 7, device=d),
    "eye": lambda d: [torch.eye(3, device=d), torch.eye(2, 4, dtype=torch.bool, device=d)],
    "triangle": lambda d: [torch.tril_indices(3, 4, device=d), torch.triu_indices(3, 3, 1, device=d)],
    "windows": lambda d: [torch.hann_window(8, device=d), torch.hamming_window(5, device=d)],
    "tensor": lambda d: [torch.tensor(data, device=d) for data in ([[1, 2], [3, 4]], 2.5, [], True)],
    "scalar_tensor": lambda d: torch.scalar_tensor(3, device=d),
    "likes": lambda d: [like(torch.ones(3, 4, device=d).t()) for like in (torch.zeros_like, torch.rand_like)],
    "full_like": lambda d: torch.full_like(torch.ones(2, 2, device=d), 4, dtype=torch.int32),
    "new": lambda d: [torch.ones(2, device=d).new_zeros(3), torch.ones(2, device=d).new_full((2,), 5)],
    "new_tensor": lambda d: torch.ones(1, device=d).new_tensor([1, 2]),
    "random": lambda d: [torch.rand(4, device=d), torch.randn(7, device=d), torch.randint(9, (5,), device=d)],
    "permutation": lambda d: torch.randperm(6, device=d),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.arange(2.0, device=d)),
    "cartesian": lambda d: torch.cartesian_prod(torch.arange(2, device=d), torch.arange(3, device=d)),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factory_gives_the_cpus_tensor(name: str, agree: Agree) -> None:
    agree(FACTORIES[name])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_empty_has_the_layout_asked_for(layout: torch.memory_format) -> None:
    found = torch.empty(2, 3, 4, 5, device="neuron", memory_format=layout)
    expected = torch.empty(2, 3, 4, 5, memory_format=layout)
    assert found.stride() == expected.stride() and found.is_contiguous(memory_format=layout)
    assert torch.empty_like(found).stride() == torch.empty_like(expected).stride()


def test_empty_strided_covers_its_strides() -> None:
    found = torch.empty_strided((3, 4), (10, 2), device="neuron")
    assert found.stride() == (10, 2)
    assert found.untyped_storage().nbytes() == torch.empty_strided((3, 4), (10, 2)).untyped_storage().nbytes()
    assert found.fill_(2).sum().item() == 24


def test_memory_comes_at_first_use() -> None:
    before = torch.neuron.memory_allocated()
    x = torch.empty(1 << 20, device="neuron")
    assert torch.neuron.memory_allocated() == before
    x.fill_(1).sum().item()
    assert torch.neuron.memory_allocated() >= before + (4 << 20)


def test_requires_grad_and_default_device() -> None:
    assert torch.zeros(2, device="neuron", requires_grad=True).requires_grad
    with torch.device("neuron"):
        assert torch.ones(2).is_neuron and torch.nn.Linear(2, 2).weight.is_neuron
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.empty(-1, device=d),
        lambda d: torch.empty_strided((2,), (-1,), device=d),
        lambda d: torch.arange(0, 5, -1, device=d),
        lambda d: torch.arange(0, 5, 0, device=d),
        lambda d: torch.linspace(0, 1, -1, device=d),
        lambda d: torch.eye(-1, device=d),
        lambda d: torch.randint(5, 2, (3,), device=d),
        lambda d: torch.full((2,), 300, dtype=torch.uint8, device=d),
    ],
)
def test_wrong_arguments_are_refused_as_on_the_cpu(make: Callable[[str], torch.Tensor]) -> None:
    def error(device: str) -> BaseException | None:
        try:
            make(device).sum().item()
        except Exception as error:
            return error
        return None

    for _ in range(3):
        assert type(error("neuron")) is type(error("cpu"))


def test_device_index_beyond_the_last_is_refused() -> None:
    with pytest.raises(RuntimeError, match="device"):
        torch.empty(2, device="neuron:7")


def test_resize_keeps_what_fits(agree: Agree) -> None:
    def program(device: str) -> list[object]:
        x = torch.arange(6.0, device=device) + 1
        x.resize_(2, 5)[1, 1:] = 0
        grown = x.clone()
        x.resize_(3)
        y = torch.empty(0, device=device)
        y.resize_(4).fill_(3)
        return [grown, x, x.stride(), y, torch.ones(2, 3, device=device).t().resize_as_(grown.view(5, 2)).shape]

    agree(program)


def test_set_shares_the_storage(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x, y = torch.arange(6.0, device=device) * 2, torch.empty(0, device=device)
        y.set_(x)
        y.add_(1)
        z = torch.empty(0, device=device).set_(x.untyped_storage(), 1, (2, 2), (2, 1))
        z.mul_(10)
        return [x, y, z, y.is_set_to(x), torch.empty(0, device=device).set_().numel()]

    agree(program)


def test_deterministic_fill_is_heeded() -> None:
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            assert torch.empty(5, device="neuron").isnan().all()
            assert torch.empty(5, dtype=torch.int8, device="neuron").eq(127).all()
    finally:
        torch.use_deterministic_algorithms(deterministic)
