"""Quick steps: the same bits as the kernels that they stand for, taken where they apply and nowhere else."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fusion import check, forced

import adaptive_eager

F, D, H, I64 = torch.float32, torch.float64, torch.bfloat16, torch.int64
Tensors = list[torch.Tensor]


@pytest.fixture(autouse=True, params=[0, 1], ids=["trusted", "compared"])
def adaptive(request: pytest.FixtureRequest, reset: None) -> Iterator[None]:
    """Quick steps' first results are used, and in a second run compared with those of the kernels."""
    with forced(request.param), torch.no_grad():
        yield


def make(*shapes: tuple[int, ...], dtype: torch.dtype = F) -> Callable[[], Tensors]:
    if dtype.is_floating_point:
        return lambda: [torch.randn(shape).to(dtype) for shape in shapes]
    return lambda: [torch.randint(-9, 9, shape).to(dtype) for shape in shapes]


def run(op: str, program: Callable[..., Any], inputs: Callable[[], Tensors], quick: bool = True) -> None:
    """The program gives the CPU's bits, and its steps of the op are quick, or not."""
    found = [u for r in check(program, inputs) for u in r["units"] if u["name"].split(".")[0] == f"aten::{op}"]
    assert found, f"no step of {op}"
    assert {u.get("quick", False) for u in found} == {quick}


# Data that moves


@pytest.mark.parametrize("dtype", [F, D, H, I64, torch.bool, torch.complex64, torch.int8])
def test_roll_moves_any_type(dtype: torch.dtype) -> None:
    run("roll", lambda x: torch.roll(x, 3), lambda: [torch.randn(29).mul(3).to(dtype)])


@pytest.mark.parametrize(
    ("shape", "shifts", "dims"),
    [
        ((7,), -1, None),
        ((7,), 0, None),
        ((7,), 7, 0),
        ((7,), -23, 0),
        ((1,), 5, 0),
        ((4, 5), 2, None),
        ((4, 5), 1, 0),
        ((4, 5), -2, 1),
        ((4, 5), -2, -1),
        ((4, 5), (1, 2), (0, 1)),
        ((4, 5), (1, 2), (1, 1)),
        ((3, 1, 4, 2), (1, 3, -1), (0, 2, 3)),
    ],
)
def test_roll(shape: tuple[int, ...], shifts: Any, dims: Any) -> None:
    run("roll", lambda x: torch.roll(x, shifts, dims) if dims is not None else torch.roll(x, shifts), make(shape))


def test_roll_of_views() -> None:
    run("roll", lambda x: [torch.roll(x.t(), 1, 0), torch.roll(x[:, 1:4], 2, 1), torch.roll(x[1], 1, 0)], make((5, 6)))
    run("roll", lambda x: torch.roll(x.expand(4, 6), (1, 2), (0, 1)), make((1, 6)))
    run("roll", lambda x: torch.roll(x[::2], 1, 0), make((11, 3)))


def test_roll_of_what_is_not_contiguous_and_flat_is_left() -> None:
    run("roll", lambda x: torch.roll(x.t(), 1), make((5, 6)), quick=False)


def test_roll_of_nothing_and_of_much() -> None:
    check(lambda x: torch.roll(x, 1, 0) + 1, make((0, 3)))
    run("roll", lambda x: torch.roll(x, 1, 0), make((1 << 15,)), quick=False)


def test_rolled_results_live_on_die_and_are_written() -> None:
    kept: Tensors = []

    def program(x: torch.Tensor) -> Tensors:
        a = torch.roll(x, 1)
        b = torch.roll(a, -3)  # of a temporary
        torch.roll(b, 2)  # of no use
        b.mul_(2)
        c = torch.roll(b * x, 1) - torch.roll(b, 1)
        kept.append(a)
        return [b, c, a]

    run("roll", program, make((40,)))
    run("roll", lambda x: torch.roll(x, 1).view(5, 8).t().add(1), make((40,)))


@pytest.mark.parametrize("dtype", [F, H, I64, torch.complex64])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_cat(dim: int, dtype: torch.dtype) -> None:
    run("cat", lambda x, y: torch.cat([x, y, x], dim), make((2, 3, 4), (2, 3, 4), dtype=dtype))


def test_cat_of_views_and_sizes() -> None:
    run("cat", lambda x, y: torch.cat([x.t(), y, y[:, :2]], 1), make((3, 5), (5, 4)))
    run("cat", lambda x, y: torch.cat([x[:, ::2], y.expand(5, 4)], 0), make((3, 8), (1, 4)))
    run("cat", lambda x, y: torch.cat([x[0, 0].view(1), y[0, :3]]), make((3, 8), (1, 4)))
    run("cat", lambda x, y: torch.cat([x, y], 1), make((3, 0), (3, 2)))
    run("cat", lambda x, y: torch.cat([x, y], 1), make((0,), (3, 2)))
    run("cat", lambda x: torch.cat([x.permute(0, 2, 1), x.permute(0, 2, 1)], 2), make((2, 3, 4)))
    channels_last = lambda: [torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)]  # noqa: E731
    run("cat", lambda x: torch.cat([x, x], 1), channels_last)


def test_cat_that_is_no_mere_copy_is_left() -> None:
    run("cat", lambda x, y: torch.cat([x, y.double()]), make((3, 2), (3, 2)), quick=False)
    run("cat", lambda x, y: torch.cat([x, y]), make((1 << 14,), (1 << 14,)), quick=False)


def index(x: torch.Tensor, *values: int, dtype: torch.dtype = I64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=x.device)


@pytest.mark.parametrize("dtype", [F, H, I64, torch.bool])
def test_index_select(dtype: torch.dtype) -> None:
    def inputs() -> Tensors:
        return [torch.randn(5, 6).to(dtype), torch.randint(0, 5, (7,)), torch.randint(0, 5, (2,), dtype=torch.int32)]

    run("index_select", lambda x, i, j: [x.index_select(0, i), x.index_select(1, j), x.index_select(-1, i)], inputs)
    run("index_select", lambda x, i, j: [x.t().index_select(0, i[::2]), x[:, 1:].index_select(0, i[0])], inputs)
    run("index_select", lambda x, i, j: x.expand(2, 5, 6).index_select(1, i), inputs)


def test_embedding_is_rows() -> None:
    inputs = lambda: [torch.randn(9, 8), torch.randint(0, 9, (2, 3))]  # noqa: E731
    run("index_select", lambda w, i: torch.nn.functional.embedding(i, w), inputs)


def test_index_out_of_range_is_an_error(adaptive: None) -> None:
    x = torch.randn(4, 3, device="neuron")
    for values in [(0, 3), (3, 1), (2, 2)] * 2:
        x.index_select(0, index(x, *values)).sum().item()
    with pytest.raises((IndexError, RuntimeError)):
        x.index_select(0, index(x, 0, 4)).sum().item()
    assert torch.equal(x.index_select(0, index(x, 3, 0)).cpu(), x.cpu()[[3, 0]])


# Products

SHAPES = [
    (8, 64, 256),
    (1, 128, 384),
    (128, 1, 7),
    (5, 7, 1),
    (1, 9, 1),
    (1, 1, 1),
    (2, 3, 4),
    (64, 8, 64),
    (33, 17, 65),
]


@pytest.mark.parametrize("dtype", [F, D])
@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, k, n = shape
    run("mm", lambda a, b: a @ b, make((m, k), (k, n), dtype=dtype))
    run("mm", lambda a, b: a @ b.t(), make((m, k), (n, k), dtype=dtype))
    run("addmm", lambda c, a, b: torch.addmm(c, a, b.t()), make((n,), (m, k), (n, k), dtype=dtype))


@pytest.mark.parametrize("bias", [(256,), (1, 256), (8, 1), (8, 256), (1,), (1, 1), ()])
def test_bias_is_spread(bias: tuple[int, ...]) -> None:
    run("addmm", lambda c, a, b: torch.addmm(c, a, b), make(bias, (8, 16), (16, 256)))
    run("addmm", lambda c, a, b: torch.addmm(c, a.t(), b), make(bias, (16, 8), (16, 256)))


def test_product_of_views() -> None:
    run("mm", lambda a, b: a[:, 1:5] @ b[2:6, :3], make((6, 8), (8, 7)))
    run("mm", lambda a, b: a.t()[:5] @ b.t(), make((6, 8), (7, 6)))
    run("mm", lambda a, b: a[3:4] @ b, make((6, 8), (8, 7)))
    run("mm", lambda a, b: a[:, 2:3] @ b[1:2], make((6, 8), (8, 7)))
    run("mm", lambda a: a @ a, make((6, 6)))
    run("mm", lambda a: a @ a.t(), make((6, 9)))
    run("addmm", lambda a: torch.addmm(a, a, a.t()), make((6, 6)))
    run("addmm", lambda c, a, b: torch.addmm(c.t(), a, b), make((4, 3), (3, 5), (5, 4)))
    run("addmm", lambda c, a, b: torch.addmm(c[::2], a, b), make((8,), (3, 5), (5, 4)))


def test_operands_that_are_copied_first_are_left() -> None:
    run("mm", lambda a, b: a[:, ::2] @ b, make((6, 8), (4, 7)), quick=False)
    run("mm", lambda a, b: a.expand(6, 8) @ b, make((1, 8), (8, 7)), quick=False)


@pytest.mark.parametrize("dtype", [H, torch.float16, I64, torch.complex64])
def test_products_of_other_types_are_left(dtype: torch.dtype) -> None:
    run(
        "mm",
        lambda a, b: a @ b,
        make((6, 8), (8, 7), dtype=dtype) if dtype != torch.complex64 else complex_pair,
        quick=False,
    )


def complex_pair() -> Tensors:
    return [torch.randn(6, 8, dtype=torch.complex64), torch.randn(8, 7, dtype=torch.complex64)]


def test_empty_products() -> None:
    check(lambda a, b: a @ b, make((0, 8), (8, 7)))
    check(lambda a, b: a @ b, make((6, 0), (0, 7)))
    check(lambda c, a, b: torch.addmm(c, a, b), make((7,), (6, 0), (0, 7)))


def test_factors_are_parameters() -> None:
    for beta, alpha in [(1, 1), (0, 1), (2.5, -1), (0.0, 0.5), (1, 0), (-0.5, 3)]:
        run("addmm", lambda c, a, b, p=beta, q=alpha: torch.addmm(c, a, b, beta=p, alpha=q), make((5,), (6, 8), (8, 5)))


def test_unused_bias_is_not_read() -> None:
    nan = lambda: [torch.full((5,), torch.nan), torch.randn(6, 8), torch.randn(8, 5)]  # noqa: E731
    run("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0), nan)


def test_nan_and_infinity_go_through() -> None:
    def inputs() -> Tensors:
        a, b = torch.randn(6, 8), torch.randn(8, 5)
        a[1, 2], a[2, 3], b[4, 4] = torch.nan, torch.inf, -torch.inf
        return [a, b]

    run("mm", lambda a, b: a @ b, inputs)


def test_products_in_place() -> None:
    run("addmm_", lambda c, a, b: c.addmm_(a, b), make((6, 5), (6, 8), (8, 5)))
    run("addmm_", lambda c, a, b: c.addmm_(a, b, beta=0.5, alpha=2), make((6, 5), (6, 8), (8, 5)))
    run("addmm_", lambda c, a, b: c.t().addmm_(a, b), make((5, 6), (6, 8), (8, 5)))
    run("addmm_", lambda c, a, b: c[:, 1:4].addmm_(a, b), make((6, 5), (6, 8), (8, 3)))


def test_result_that_is_an_operand_is_left() -> None:
    run("addmm_", lambda c, b: c[:2].addmm_(c[2:4, :3], b), make((6, 5), (3, 5)), quick=False)


@pytest.mark.parametrize("dtype", [F, D])
def test_batches(dtype: torch.dtype) -> None:
    run("bmm", torch.bmm, make((4, 16, 32), (4, 32, 8), dtype=dtype))
    run("bmm", lambda a, b: torch.bmm(a, b.mT), make((4, 16, 32), (4, 8, 32), dtype=dtype))
    run("bmm", lambda a, b: torch.bmm(a.mT, b), make((4, 32, 16), (4, 32, 8), dtype=dtype))
    run("bmm", torch.bmm, make((1, 16, 32), (1, 32, 8), dtype=dtype))
    run("bmm", torch.bmm, make((3, 1, 32), (3, 32, 64), dtype=dtype))
    run("bmm", torch.bmm, make((3, 32, 64), (3, 64, 1), dtype=dtype))
    run("bmm", lambda a, b: torch.bmm(a.transpose(0, 1), b), make((16, 4, 32), (4, 32, 8), dtype=dtype))
    run("bmm", lambda a, b: torch.bmm(a.expand(4, 16, 32), b), make((1, 16, 32), (4, 32, 8), dtype=dtype))


def test_batches_that_no_blas_call_computes_are_left() -> None:
    run("bmm", torch.bmm, make((4, 3, 4), (4, 4, 5)), quick=False)
    run("bmm", lambda a, b: torch.bmm(a[:, :, ::2], b), make((4, 16, 64), (4, 32, 8)), quick=False)
    run("bmm", torch.bmm, make((4, 16, 32), (4, 32, 8), dtype=H), quick=False)


def test_reduced_precision_is_the_kernels() -> None:
    inputs = make((32, 64), (64, 48))
    run("mm", lambda a, b: a @ b, inputs)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        check(lambda a, b: a @ b, inputs)
    finally:
        torch.set_float32_matmul_precision(before)
    run("mm", lambda a, b: a @ b, inputs)


def test_products_on_several_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run("addmm", lambda c, a, b: torch.addmm(c, a, b.t()), make((256,), (64, 300), (256, 300)))
        run("bmm", torch.bmm, make((4, 64, 32), (4, 32, 64)))
    finally:
        torch.set_num_threads(before)


def test_linear_layer_and_its_gradients() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Tensors:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (x, w, b)]
            torch.nn.functional.linear(*leaves).tanh().sum().backward()
        return [t.grad for t in leaves if t.grad is not None]

    for op in ("addmm", "mm", "sum"):
        run(op, program, make((8, 64), (256, 64), (256,)))


# Kernels behind the set-up


@pytest.mark.parametrize("dtype", [F, D, H])
def test_layer_norm(dtype: torch.dtype) -> None:
    norm = torch.nn.functional.layer_norm
    run("native_layer_norm", lambda x, w, b: norm(x, (24,), w, b), make((3, 2, 24), (24,), (24,), dtype=dtype))
    run("native_layer_norm", lambda x, w: norm(x, (24,), w), make((5, 24), (24,), dtype=dtype))
    run("native_layer_norm", lambda x: norm(x, (24,), eps=0.1), make((24,), dtype=dtype))
    run(
        "native_layer_norm",
        lambda x: torch.native_layer_norm(x, (2, 24), None, None, 1e-5),
        make((3, 2, 24), dtype=dtype),
    )


def test_layer_norm_of_mixed_types() -> None:
    run(
        "native_layer_norm",
        lambda x, w, b: torch.native_layer_norm(x.bfloat16(), (24,), w, b, 1e-5),
        make((3, 24), (24,), (24,)),
    )


def test_layer_norm_that_copies_first_is_left() -> None:
    run(
        "native_layer_norm",
        lambda x: torch.native_layer_norm(x.t(), (3,), None, None, 1e-5),
        make((3, 24)),
        quick=False,
    )
    check(lambda x: torch.native_layer_norm(x, (24,), None, None, 1e-5), make((0, 24)))


@pytest.mark.parametrize("dtype", [F, D])
@pytest.mark.parametrize("dims", [0, 1, -1, (0, 1), (0, 2), (1, 2), None])
@pytest.mark.parametrize("keepdim", [False, True])
def test_sum(dims: Any, keepdim: bool, dtype: torch.dtype) -> None:
    run("sum", lambda x: torch.sum(x, dims, keepdim=keepdim), make((8, 17, 33), dtype=dtype))
    run("sum", lambda x: torch.sum(x.permute(2, 0, 1), dims, keepdim=keepdim), make((8, 17, 33), dtype=dtype))


def test_sum_of_one_and_of_none() -> None:
    run("sum", lambda x: x.sum(), make(()))
    run("sum", lambda x: x.expand(7, 3).sum(0), make((1, 3)))
    check(lambda x: x.sum(0), make((0, 3)))


@pytest.mark.parametrize("dtype", [H, I64])
def test_sum_of_other_types_is_left(dtype: torch.dtype) -> None:
    run("sum", lambda x: x.sum(0), make((5, 6), dtype=dtype), quick=False)


@pytest.mark.parametrize("dtype", [F, D, H])
def test_softmax_and_its_gradient(dtype: torch.dtype) -> None:
    softmax, log_softmax = torch.softmax, torch.log_softmax
    shapes = make((3, 5, 17), (3, 5, 17), dtype=dtype)
    run("_softmax", lambda x, g: softmax(x * g, -1), shapes)
    run("_log_softmax", lambda x, g: log_softmax(x, 2), shapes)
    run("_softmax_backward_data", lambda x, g: torch._softmax_backward_data(g, x, 2, dtype), shapes)
    run("_log_softmax_backward_data", lambda x, g: torch._log_softmax_backward_data(g, x, -1, dtype), shapes)
    run("_softmax", lambda x: softmax(x, 0), make((9,), dtype=dtype))
    run("_softmax", lambda x: softmax(x, -1), make((200, 64), dtype=dtype))


def test_softmax_that_walks_otherwise_is_left() -> None:
    run("_softmax", lambda x: torch.softmax(x, 0), make((3, 5)), quick=False)
    run("_softmax", lambda x: torch.softmax(x.t(), 1), make((3, 5)), quick=False)
    run("_softmax", lambda x: torch.softmax(x, 0), make(()), quick=False)
    check(lambda x: torch.softmax(x, 1), make((0, 5)))


def batch_norm(x: torch.Tensor, g: torch.Tensor, *rest: torch.Tensor, **options: Any) -> Tensors:
    """In training, with rest = weight, bias, running mean and variance, as many as there are; and the gradients."""
    w, b, mean, var = [*rest, None, None, None, None][:4]
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (x, w, b) if t is not None]
        y = torch.nn.functional.batch_norm(leaves[0], mean, var, *leaves[1:], training=True, **options)
        y.backward(g)
    return [y.detach(), *(t.grad for t in leaves if t.grad is not None), *rest[2:]]


def batches(*shape: int, parameters: int = 4, scale: float = 1) -> Callable[[], Tensors]:
    def inputs() -> Tensors:
        rest = [torch.randn(shape[1]), torch.randn(shape[1]), torch.randn(shape[1]), torch.rand(shape[1])]
        return [torch.randn(shape).mul(scale).add(1), torch.randn(shape), *rest[:parameters]]

    return inputs


BATCHES = [
    (8, 16, 8, 8),
    (5, 13, 7, 9),
    (1, 3, 5, 5),
    (3, 9, 1, 2),
    (2, 17, 3),
    (6, 1, 2, 2, 2),
    (4, 8, 31),
    (9, 20, 2, 4),
]


@pytest.mark.parametrize("shape", BATCHES)
def test_batch_norm_and_its_gradient(shape: tuple[int, ...]) -> None:
    for op in ("native_batch_norm", "native_batch_norm_backward"):
        run(op, batch_norm, batches(*shape))
        run(op, lambda *a: batch_norm(*a, momentum=0.37, eps=0.01), batches(*shape, scale=100))
        run(op, batch_norm, batches(*shape, parameters=2))
    plain = batches(*shape, parameters=0)
    run("native_batch_norm", lambda x, g: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 0), plain)


def test_batch_norm_without_parameters() -> None:
    run("native_batch_norm", batch_norm, batches(4, 6, 5, 5, parameters=0))
    run("native_batch_norm_backward", batch_norm, batches(4, 6, 5, 5, parameters=0), quick=False)


def test_batch_norm_of_what_is_not_finite_or_does_not_vary() -> None:
    def inputs() -> Tensors:
        x, g, *rest = batches(3, 12, 5, 5)()
        x[0, 0, 0, 0], x[1, 1, 2, 2], x[2, 1, 3, 3], x[0, 2] = torch.nan, torch.inf, -torch.nan, -torch.inf
        x[:, 3], x[1, 4, 1, 1], x[:, 5] = 2, 3e38, x[:, 5] * 1e-30
        return [x, g, *rest]

    def gradients() -> Tensors:
        x, g, *rest = batches(3, 12, 5, 5)()
        g[0, 0, 0, 0], g[1, 1, 2, 2], g[2, 1, 3, 3], g[0, 2] = torch.nan, torch.inf, -torch.nan, -torch.inf
        g[0, 3], rest[0][4], rest[0][5] = 3e38, torch.nan, torch.inf
        rest[1][6], rest[2][7], rest[3][8] = torch.nan, torch.nan, torch.inf
        return [x, g, *rest]

    for values in (inputs, gradients):
        run("native_batch_norm", batch_norm, values)
        run("native_batch_norm_backward", batch_norm, values)


def test_batch_norm_in_a_chain() -> None:
    def program(x: torch.Tensor, g: torch.Tensor, *rest: torch.Tensor) -> Tensors:
        y = batch_norm(x * 2, g + 1, *rest)[0].relu()
        z = batch_norm(y + x, y, *rest)  # the running statistics move on
        return [y, *z, rest[2] + rest[3]]

    run("native_batch_norm", program, batches(4, 10, 6, 6))
    run("native_batch_norm_backward", program, batches(4, 10, 6, 6))


def test_batch_norm_on_several_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run("native_batch_norm", batch_norm, batches(8, 19, 16, 16))
        run("native_batch_norm_backward", batch_norm, batches(8, 19, 16, 16))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [D, H])
def test_batch_norm_of_other_types_is_left(dtype: torch.dtype) -> None:
    inputs = lambda: [t.to(dtype) for t in batches(3, 5, 4, 4)()]  # noqa: E731
    run("native_batch_norm", batch_norm, inputs, quick=False)
    run("native_batch_norm_backward", batch_norm, inputs, quick=False)


def test_batch_norm_that_walks_otherwise_is_left() -> None:
    op = "native_batch_norm"
    run(op, lambda x, *a: batch_norm(x.transpose(2, 3), *a), batches(3, 5, 4, 4), quick=False)
    run(op, lambda x, *a: batch_norm(x.to(memory_format=torch.channels_last), *a), batches(3, 5, 4, 4), quick=False)
    run(op, batch_norm, batches(9, 5), quick=False)
    run(op, batch_norm, batches(9, 5, 1, 1), quick=False)
    run(op, lambda x: torch.nn.functional.batch_norm(x, x[0, :, 0], x[1, :, 0]), make((3, 5, 4)), quick=False)


@pytest.mark.parametrize("dtype", [F, D, H])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, dtype: torch.dtype) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    op = "_scaled_dot_product_flash_attention_for_cpu"
    run(op, lambda q, k, v: attention(q, k, v, is_causal=causal), make(*[(2, 4, 9, 16)] * 3, dtype=dtype))
    run(op, lambda q, k, v: attention(q, k, v, scale=0.3), make((1, 4, 1, 32), *[(1, 4, 20, 32)] * 2, dtype=dtype))
    run(op, lambda q, k, v, m: attention(q, k, v, m), make(*[(2, 4, 9, 16)] * 3, (9, 9), dtype=dtype))

    def heads(x: torch.Tensor) -> torch.Tensor:  # views, as transformers make them
        q, k, v = x.view(2, 9, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(2, 9, 64)

    run(op, heads, make((2, 9, 192), dtype=dtype))


@pytest.mark.parametrize("dtype", [F, D])
def test_argmax(dtype: torch.dtype) -> None:
    inputs = make((8, 17, 33), dtype=dtype)
    run("argmax", lambda x: [x.argmax(-1, keepdim=True), x.argmax(0), x.permute(2, 0, 1).argmax(1)], inputs)
    run("argmax", lambda x: x.round().argmax(1), inputs)  # ties
    run("argmax", lambda x: x.div(0).argmax(1), inputs)  # infinities
    run("argmax", lambda x: x.log().argmax(1), inputs)  # NaNs
    run("argmax", lambda x: x.argmax(), inputs, quick=False)
    run("argmax", lambda x: x[:, :1].argmax(1), inputs, quick=False)


# All together


def test_one_fragment_many_memories() -> None:
    """Storages come and go between launches of one fragment; what was kept stays as it was."""
    weight, bias = torch.randn(6, 6), torch.randn(6)
    on_device = weight.to("neuron"), bias.to("neuron")
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number in range(12):
        x = torch.randn(4, 6) * number

        def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            y = torch.roll(torch.addmm(b, x, w.t()), 1, 1)
            return torch.cat([y.sum(0, keepdim=True), y, torch.nn.functional.layer_norm(y @ w, (6,))])

        kept.append((program(x.to("neuron"), *on_device), program(x, weight, bias)))
        adaptive_eager.flush()
    assert all(torch.equal(found.cpu(), expected) for found, expected in kept)
