"""Recurrent layers and cells give the CPU's bits: outputs, hidden states and gradients."""

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import adaptive_eager

VF: Any = torch._VF
LENGTHS = {"even": [5, 5, 5], "sorted": [5, 3, 1], "unsorted": [2, 5, 4]}
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no biases": {"bias": False},
    "two directions": {"bidirectional": True},
    "batch first": {"num_layers": 2, "batch_first": True},
    "dropout": {"num_layers": 3, "bidirectional": True, "dropout": 0.4},
    "projected": {"proj_size": 3},
    "all projected": {"proj_size": 2, "num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True},
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """One thread, which is fastest for sizes as small as these, and no warnings that the CPU gives too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
        yield
    torch.set_num_threads(threads)


def run(
    device: str,
    kind: str,
    options: dict[str, Any],
    dtype: torch.dtype,
    sizes: tuple[int, int, int, int] = (5, 3, 4, 7),
    packed: str | None = None,
    train: bool = True,
    grad: bool = True,
    states: bool = True,
    twice: bool = False,
) -> list[torch.Tensor]:
    """Outputs and last states, and with `grad` the gradients of all parameters and inputs; `twice` adds theirs."""
    steps, batch, width, hidden = sizes
    batch_first = options.get("batch_first", False)
    torch.manual_seed(0)
    module = KINDS[kind](width, hidden, **options).to(dtype)
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    inputs = [torch.randn(*((batch, steps) if batch_first else (steps, batch)), width, dtype=dtype)]
    if states:
        inputs.append(torch.randn(rows, batch, options.get("proj_size") or hidden, dtype=dtype))
        if kind == "lstm":
            inputs.append(torch.randn(rows, batch, hidden, dtype=dtype))
    module.to(device).train(train)
    inputs = [t.to(device).requires_grad_(grad) for t in inputs]

    first = inputs[0]
    if packed:
        first = pack_padded_sequence(first, LENGTHS[packed], batch_first, enforce_sorted=packed != "unsorted")
    torch.manual_seed(1)
    with torch.set_grad_enabled(grad):
        output, last = module(first, None if not states else tuple(inputs[1:]) if kind == "lstm" else inputs[1])
    results = [output.data if packed else output, *(last if kind == "lstm" else [last])]
    if grad:
        wanted = [*module.parameters(), *inputs]
        loss = sum((t * torch.linspace(-1, 2, t.numel(), dtype=dtype).view(t.shape).to(device)).sum() for t in results)
        gradients = torch.autograd.grad(loss, wanted, create_graph=twice)
        results += gradients
        if twice:
            results += torch.autograd.grad(sum((g * g).sum() for g in gradients), wanted)
    return results


def check(assert_same: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    expected = run("cpu", *args, **kwargs)
    for _ in range(3 if adaptive_eager.mode() == "adaptive" else 1):  # the ops run, are recorded, are predicted
        found = run("neuron", *args, **kwargs)
        assert all(t.device.type == "neuron" for t in found)
        assert_same(found, expected)


@pytest.mark.parametrize("packed", [None, *LENGTHS])
@pytest.mark.parametrize(
    ("kind", "options"), [(k, o) for k in KINDS for o in OPTIONS if k == "lstm" or "proj_size" not in OPTIONS[o]]
)
def test_layers(kind: str, options: str, packed: str | None, mode: str, assert_same: Callable[..., None]) -> None:
    for dtype in DTYPES:
        check(assert_same, kind, OPTIONS[options], dtype, packed=packed)
        check(assert_same, kind, OPTIONS[options], dtype, packed=packed, train=False, grad=False, states=False)


@pytest.mark.parametrize("sizes", [(1, 1, 3, 5), (7, 2, 13, 33), (4, 0, 3, 5)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_sizes(kind: str, sizes: tuple[int, int, int, int], mode: str, assert_same: Callable[..., None]) -> None:
    for dtype in DTYPES:
        for grad in (True, False):
            check(assert_same, kind, {}, dtype, sizes, grad=grad)


@pytest.mark.parametrize("kind", KINDS)
def test_both_grad_modes_of_one_module(kind: str, mode: str, assert_same: Callable[..., None]) -> None:
    """oneDNN's LSTM has kernels of its own for inference, which keep nothing for backward."""
    for dtype in (torch.float32, torch.bfloat16):
        for grad in (False, True, False, True):
            check(assert_same, kind, {}, dtype, (1, 1, 3, 5), grad=grad)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_threads(kind: str, threads: int, mode: str, assert_same: Callable[..., None]) -> None:
    torch.set_num_threads(threads)
    check(assert_same, kind, {"num_layers": 2}, torch.float32, (6, 32, 64, 96))


@pytest.mark.parametrize("packed", [None, "sorted"])
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: str, packed: str | None, mode: str, assert_same: Callable[..., None]) -> None:
    """On one thread: a backward thread of the device's own numbers nodes anew, and gradients add up by number."""
    with torch.autograd.set_multithreading_enabled(False):
        for options in ({"bidirectional": True}, {"num_layers": 2}):
            for dtype in (torch.float64, torch.float32):
                check(assert_same, kind, options, dtype, packed=packed, twice=True)


@pytest.mark.parametrize("kind", KINDS)
def test_without_onednn(kind: str, mode: str, assert_same: Callable[..., None]) -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        check(assert_same, kind, {"num_layers": 2}, torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast(kind: str, dtype: torch.dtype, mode: str, assert_same: Callable[..., None]) -> None:
    def go(device: str) -> list[torch.Tensor]:
        with torch.autocast(device, dtype):
            return run(device, kind, {"num_layers": 2}, torch.float32)

    try:
        expected = go("cpu")
    except RuntimeError as error:  # on some processors oneDNN has no LSTM in float16
        with pytest.raises(RuntimeError, match=re.escape(str(error).splitlines()[0])):
            go("neuron")
        return
    for _ in range(3):
        assert_same(go("neuron"), expected)


# ---- the ops that the modules call, with what modules never pass


def weights(device: str, gates: int, dtype: torch.dtype, width: int = 3, biases: bool = True) -> list[torch.Tensor]:
    shapes = [(gates * 5, width), (gates * 5, 5), *([(gates * 5,), (gates * 5,)] if biases else [])]
    return [torch.randn(shape, dtype=dtype).to(device) for shape in shapes]


def both(call: Callable[[str], Any]) -> tuple[Any, Any]:
    """What a call gives, or raises, on the device and on the CPU."""
    results = []
    for device in ("neuron", "cpu"):
        torch.manual_seed(0)
        try:
            results.append(call(device))
        except Exception as error:
            results.append((type(error), str(error).splitlines()[0].replace("neuron:0", "cpu")))
    return results[0], results[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strided_operands(dtype: torch.dtype, mode: str, assert_same: Callable[..., None]) -> None:
    def lstm(device: str, *sizes: torch.Tensor) -> Any:
        x = torch.randn(6, 7, dtype=dtype).to(device)[:, :3]
        h = torch.randn(5, 2, 1, dtype=dtype).to(device).permute(2, 1, 0)
        c = torch.randn(1, 2, 10, dtype=dtype).to(device)[..., ::2]
        w = [*weights(device, 4, dtype)]
        w[0] = torch.randn(3, 20, dtype=dtype).to(device).t()
        w[2] = torch.randn(40, dtype=dtype).to(device)[::2]
        if not sizes:
            x = x.reshape(3, 2, 3).transpose(0, 1).contiguous().transpose(0, 1)
        results = VF.lstm(x, *sizes, (h, c), w, True, 1, 0.0, False, False, *([] if sizes else [False]))
        return results, [t.stride() for t in results]

    for _ in range(3):
        assert_same(*both(lstm))
        assert_same(*both(lambda device: lstm(device, torch.tensor([2, 2, 2]))))
        assert_same(*both(lambda device: lstm(device, torch.tensor([3, 2, 1]))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_tensor_as_both_states(dtype: torch.dtype, mode: str, assert_same: Callable[..., None]) -> None:
    def go(device: str) -> Any:
        h, x = (torch.randn(*s, dtype=dtype).to(device).requires_grad_() for s in ((1, 2, 5), (4, 2, 3)))
        w = [t.requires_grad_() for t in weights(device, 4, dtype)]
        output, hy, cy = VF.lstm(x, (h, h), w, True, 1, 0.0, True, False, False)
        return torch.autograd.grad((output * output).sum() + (hy * cy).sum(), [h, x, *w])

    for _ in range(3):
        assert_same(*both(go))


CELLS = {
    "lstm": (torch.lstm_cell, 4),
    "gru": (torch.gru_cell, 3),
    "tanh": (torch.rnn_tanh_cell, 1),
    "relu": (torch.rnn_relu_cell, 1),
}


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind: str, biases: bool, mode: str, assert_same: Callable[..., None]) -> None:
    cell, gates = CELLS[kind]

    def go(device: str, dtype: torch.dtype) -> Any:
        x, h, c = (torch.randn(2, n, dtype=dtype).to(device).requires_grad_() for n in (3, 5, 5))
        w = [t.requires_grad_() for t in weights(device, gates, dtype, biases=biases)]
        state = (h, c) if kind == "lstm" else h
        for _ in range(3):
            state = cell(x, state, *w)
        results = state if kind == "lstm" else (state,)
        return *results, *torch.autograd.grad(sum((t * t).sum() for t in results), [x, h, *w])

    for dtype in DTYPES:
        for _ in range(3):
            assert_same(*both(lambda device, dtype=dtype: go(device, dtype)))


def gru(device: str, *shapes: tuple[int, ...], layers: int = 1, bidirectional: bool = False, missing: int = 0) -> Any:
    x, h = (torch.randn(shape).to(device) for shape in shapes)
    w = weights(device, 3, torch.float32)
    return VF.gru(x, h, w[: len(w) - missing], True, layers, 0.0, False, bidirectional, False)


def packed_gru(device: str, sizes: torch.Tensor) -> Any:
    x, h = torch.randn(6, 3).to(device), torch.randn(1, 2, 5).to(device)
    return VF.gru(x, sizes, h, weights(device, 3, torch.float32), True, 1, 0.0, False, False)


def lstm(device: str, x: tuple[int, ...], *states: tuple[int, ...]) -> Any:
    given = [torch.randn(s, dtype=torch.float64).to(device) for s in (x, *states)]
    return VF.lstm(given[0], given[1:], weights(device, 4, torch.float64), True, 1, 0.0, False, False, False)


def cell(device: str, kind: str, x: int = 3, batch: int = 2, hidden: int = 5, wrong: int | None = None) -> Any:
    function, gates = CELLS[kind]
    w = weights(device, gates, torch.float32)
    if wrong is not None:
        w[wrong] = weights(device, gates + 1, torch.float32)[wrong]
    h = torch.randn(2, hidden).to(device)
    return function(torch.randn(batch, x).to(device), (h, h) if kind == "lstm" else h, *w)


WRONG: dict[str, tuple[Callable[[str], Any], str]] = {
    "no steps": (lambda d: gru(d, (0, 2, 3), (1, 2, 5)), "sequence length to be larger than 0"),
    "input width": (lambda d: gru(d, (3, 2, 4), (1, 2, 5)), "mat1 and mat2 shapes"),
    "hidden width": (lambda d: gru(d, (3, 2, 3), (1, 2, 4)), "mat1 and mat2 shapes"),
    "too few parameters": (lambda d: gru(d, (3, 2, 3), (1, 2, 5), missing=1), "incorrect number of RNN parameters"),
    "too few states": (lambda d: gru(d, (3, 2, 3), (1, 2, 5), layers=2), "more hidden states"),
    "too few weights": (lambda d: gru(d, (3, 2, 3), (2, 2, 5), layers=2), "more weights"),
    "odd": (lambda d: gru(d, (3, 2, 3), (1, 2, 5), bidirectional=True), "Odd number"),
    "no layers": (lambda d: gru(d, (3, 2, 3), (0, 2, 5), layers=0, missing=4), "non-empty TensorList"),
    "rising batch sizes": (lambda d: packed_gru(d, torch.tensor([2, 2, 3])), "exceeds dimension size"),
    "narrow batch sizes": (lambda d: packed_gru(d, torch.tensor([2, 2, 2], dtype=torch.int32)), "expected scalar type"),
    "one lstm state": (lambda d: lstm(d, (3, 2, 3), (1, 2, 5)), "expects two hidden states"),
    "flat lstm state": (lambda d: lstm(d, (3, 2, 3), (2, 5), (2, 5)), "Dimension out of range"),
    "lstm state width": (lambda d: lstm(d, (3, 2, 3), (1, 2, 4), (1, 2, 4)), "mat1 and mat2 shapes"),
}
for name in CELLS:
    WRONG[f"{name} cell's input"] = (lambda d, name=name: cell(d, name, x=4), "inconsistent input_size")
    WRONG[f"{name} cell's batch"] = (lambda d, name=name: cell(d, name, batch=3), "doesn't match hidden0")
    WRONG[f"{name} cell's state"] = (lambda d, name=name: cell(d, name, hidden=4), "inconsistent hidden_size")
    WRONG[f"{name} cell's input weights"] = (lambda d, name=name: cell(d, name, wrong=0), "weight_ih first dim must be")
    WRONG[f"{name} cell's state weights"] = (lambda d, name=name: cell(d, name, wrong=1), "weight_hh first dim must be")


@pytest.mark.parametrize("case", WRONG)
def test_errors(case: str, mode: str) -> None:
    call, message = WRONG[case]
    found, expected = both(call)
    assert found == expected
    assert message in expected[1]


def test_operands_on_two_devices(mode: str) -> None:
    module = nn.GRU(3, 5)
    with pytest.raises(RuntimeError, match="not at the same device"):
        module(torch.randn(4, 2, 3, device="neuron"))
    with pytest.raises(RuntimeError, match="not at the same device"):
        module.to("neuron")(torch.randn(4, 2, 3), torch.randn(1, 2, 5))


@pytest.mark.parametrize("biases", [True, False])
def test_fused_cells_called_by_name(biases: bool, mode: str) -> None:
    """The CPU has none, so they are compared with the cells, whose sums associate otherwise."""

    def go(fused: bool, kind: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        gates = CELLS[kind][1]
        x, h, c = (torch.randn(2, n, dtype=torch.float64, device="neuron").requires_grad_() for n in (3, 5, 5))
        w = [t.requires_grad_() for t in weights("neuron", gates, torch.float64, biases=biases)]
        if not fused:
            state = CELLS[kind][0](x, (h, c) if kind == "lstm" else h, *w)
        else:
            op = torch.ops.aten._thnn_fused_lstm_cell if kind == "lstm" else torch.ops.aten._thnn_fused_gru_cell
            state = op(x @ w[0].t(), h @ w[1].t(), c if kind == "lstm" else h, *w[2:])[: 2 if kind == "lstm" else 1]
        results = [state] if isinstance(state, torch.Tensor) else list(state)
        wanted = [x, h, *([c] if kind == "lstm" else []), *w]
        gradients = torch.autograd.grad(sum((t * t).sum() for t in results), wanted, retain_graph=True)
        graphs = torch.autograd.grad(sum((t * t).sum() for t in results), wanted, create_graph=True)
        return [*results, *gradients, *torch.autograd.grad(sum((g * g).sum() for g in graphs), wanted)]

    for kind in ("lstm", "gru"):
        for found, expected in zip(go(True, kind), go(False, kind), strict=True):
            torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=1e-10, atol=1e-12)


def test_fused_lstm_cell_with_one_gradient(mode: str) -> None:
    for result in (0, 1):
        gates, hidden, c = (torch.randn(2, n, dtype=torch.float64).requires_grad_() for n in (20, 20, 5))
        i, f, g, o = (gates + hidden).chunk(4, 1)
        cy = f.sigmoid() * c + i.sigmoid() * g.tanh()
        expected = torch.autograd.grad((o.sigmoid() * cy.tanh(), cy)[result].sum(), [gates, hidden, c])
        moved = [t.detach().to("neuron").requires_grad_() for t in (gates, hidden, c)]
        found = torch.autograd.grad(torch.ops.aten._thnn_fused_lstm_cell(*moved)[result].sum(), moved)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a.cpu(), b)
