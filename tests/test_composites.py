"""Ops that PyTorch composes by device take the CPU's way: convolution, attention, dropout."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

Agree = Callable[..., None]

pytestmark = pytest.mark.usefixtures("reset", "mode")


def with_gradients(device: str, op: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The result, then the gradients of its weighted sum."""
    leaves = [tensor.to(device).requires_grad_(tensor.is_floating_point()) for tensor in inputs]
    result = op(*leaves)
    weights = torch.linspace(-1, 1, result.numel()).view(result.shape).to(result.dtype).to(device)
    (result * weights).sum().backward()
    return [result, *(leaf.grad for leaf in leaves if leaf.requires_grad and leaf.grad is not None)]


CONVOLUTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "1d": (functional.conv1d, (2, 4, 9), (6, 4, 3), {}),
    "2d": (functional.conv2d, (2, 3, 8, 7), (4, 3, 3, 3), {"padding": 1}),
    "2d, strided": (functional.conv2d, (2, 4, 9, 9), (6, 4, 3, 3), {"stride": 2, "dilation": 2}),
    "2d, groups": (functional.conv2d, (2, 4, 6, 6), (8, 2, 3, 3), {"groups": 2}),
    "2d, depthwise": (functional.conv2d, (2, 4, 6, 6), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    "2d, 1x1": (functional.conv2d, (2, 8, 6, 6), (4, 8, 1, 1), {}),
    "2d, same": (functional.conv2d, (1, 3, 8, 8), (4, 3, 5, 5), {"padding": "same"}),
    "3d": (functional.conv3d, (1, 2, 5, 6, 7), (3, 2, 2, 3, 3), {}),
    "transposed 1d": (functional.conv_transpose1d, (2, 4, 5), (4, 3, 3), {"stride": 2}),
    "transposed 2d": (functional.conv_transpose2d, (2, 4, 5, 5), (4, 3, 3, 3), {"stride": 2, "output_padding": 1}),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str, bias: bool, agree: Agree) -> None:
    op, shape, weight, options = CONVOLUTIONS[name]
    channels = weight[1] if "transposed" in name else weight[0]

    def program(device: str) -> list[torch.Tensor]:
        inputs = [torch.randn(shape), torch.randn(weight), *([torch.randn(channels)] if bias else [])]
        return with_gradients(device, lambda x, w, *b: op(x, w, *b, **options), *inputs)

    agree(program, rounds=3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_convolution_in_other_dtypes_and_layouts(dtype: torch.dtype, agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x, w = torch.randn(2, 4, 8, 8, dtype=dtype), torch.randn(6, 4, 3, 3, dtype=dtype)
        x = x.contiguous(memory_format=torch.channels_last)
        results = with_gradients(device, lambda x, w: functional.conv2d(x, w, padding=1), x, w)
        assert results[0].stride() == functional.conv2d(x, w, padding=1).stride()
        return results

    agree(program, rounds=3)


def test_convolution_with_wrong_channels_is_refused() -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="to have 3 channels"):
            functional.conv2d(torch.ones(1, 2, 5, 5, device="neuron"), torch.ones(4, 3, 3, 3, device="neuron"))


def attention(mask: str = "", **options: object) -> Callable[..., torch.Tensor]:
    def op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        given = {}
        if mask:
            lower = torch.ones(q.shape[-2], k.shape[-2], device=q.device).tril()
            given["attn_mask"] = lower.bool() if mask == "bool" else lower.log().to(q.dtype)
        return functional.scaled_dot_product_attention(q, k, v, **given, **options)

    return op


ATTENTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "plain": attention(),
    "causal": attention(is_causal=True),
    "bool mask": attention("bool"),
    "float mask": attention("float"),
    "scale": attention(scale=0.3),
    "dropout": attention(dropout_p=0.4),
    "causal dropout": attention(dropout_p=0.2, is_causal=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str, dtype: torch.dtype, agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        inputs = [torch.randn(2, 3, 16, 8, dtype=dtype) for _ in range(3)]
        seed = torch.randint(1000, ()).item()
        torch.manual_seed(seed)  # inputs were drawn on the CPU: both generators are at the same place from here
        return with_gradients(device, ATTENTIONS[name], *inputs)

    agree(program, rounds=3)


def test_attention_of_other_shapes(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        q, k, v = torch.randn(2, 8, 5, 16), torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
        results = with_gradients(device, attention(enable_gqa=True), q, k, v)
        results += with_gradients(device, attention(), torch.randn(4, 5, 8), torch.randn(4, 7, 8), torch.randn(4, 7, 8))
        return results + with_gradients(
            device, attention(), torch.randn(1, 1, 6, 4), torch.randn(1, 1, 6, 4), torch.randn(1, 1, 6, 12)
        )

    agree(program, rounds=3)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=lambda backend: backend.name)
def test_attention_backend_that_is_asked_for_is_taken(backend: SDPBackend, agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        with sdpa_kernel(backend):
            return with_gradients(device, attention(is_causal=True), *(torch.randn(2, 2, 64, 16) for _ in range(3)))

    agree(program, rounds=3)


DROPOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: functional.dropout(x, 0.3),
    "in place": lambda x: functional.dropout(x * 1, 0.3, inplace=True),
    "nothing": lambda x: functional.dropout(x, 0.0),
    "everything": lambda x: functional.dropout(x, 1.0),
    "not training": lambda x: functional.dropout(x, 0.3, training=False),
    "alpha": lambda x: functional.alpha_dropout(x, 0.3, training=True),
    "channels": lambda x: functional.dropout1d(x, 0.3),
    "feature alpha": lambda x: functional.feature_alpha_dropout(x, 0.3, training=True),
    "randomised relu": lambda x: functional.rrelu(x, training=True),
    "gumbel": lambda x: functional.gumbel_softmax(x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout(name: str, dtype: torch.dtype, agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.linspace(-2, 2, 96).view(2, 6, 8).to(dtype)
        return [*with_gradients(device, DROPOUTS[name], x), torch.rand(2, device=device)]

    agree(program, rounds=3)


def test_dropout_probability_outside_its_range_is_refused() -> None:
    for p in (-0.1, 1.5):
        with pytest.raises((RuntimeError, ValueError), match="probability"):
            functional.dropout(torch.ones(3, device="neuron"), p)
        with pytest.raises(RuntimeError, match="probability"):
            torch.dropout(torch.ones(3, device="neuron"), p, True)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_mask_again(reentrant: bool) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.ones(500, device="neuron", requires_grad=True)
        y = checkpoint(lambda t: functional.dropout(t * 2, 0.5), x, use_reentrant=reentrant)
        after = torch.rand(4, device="neuron")
        y.sum().backward()
        assert x.grad is not None and x.grad.tolist() == ((y != 0) * 4.0).tolist()
        torch.manual_seed(seed)
        functional.dropout(torch.ones(500, device="neuron"), 0.5)
        assert torch.rand(4, device="neuron").tolist() == after.tolist()


def test_beta_zero_ignores_its_input(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        a, b = torch.arange(12.0, device=device).view(3, 4), torch.arange(8.0, device=device).view(4, 2)
        bad = torch.full((3, 2), float("nan"), device=device)
        results = [
            torch.addmm(bad, a, b, beta=0),
            torch.addmv(bad[:, 0], a, b[:, 0], beta=0),
            bad.clone().addmm_(a, b, beta=0),
        ]
        return [*results, torch.baddbmm(bad.expand(2, 3, 2), a.expand(2, 3, 4), b.expand(2, 4, 2), beta=0, alpha=2)]

    agree(program)
