"""Calls of every op that has a lowering: arguments of all kinds, layouts and values, many of them in one region."""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from conftest import same_bits
from fusion import forced, launched, loops, settle
from sweep import trees
from torch.testing._internal import common_methods_invocations as methods

import adaptive_eager
from adaptive_eager import _native

aten = torch.ops.aten
functional = torch.nn.functional

F = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
I = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # noqa: E741
DTYPES = (*F, *I, torch.bool)
SIZES = (
    *range(1, 71, 4),
    16,
    31,
    32,
    33,
    48,
    64,
    127,
    128,
    129,
    1023,
    1024,
    1025,
    4096,
    32767,
    32768,
    32769,
    40000,
    100003,
)
FEW_SIZES = (1, 33, 70, 129, 1025)


def rows() -> dict[str, tuple[torch.dtype, ...]]:
    """The ops that have a lowering here, and the dtypes that it computes in."""
    names = {
        "b1": torch.bool,
        "u8": torch.uint8,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "f32": torch.float32,
        "f64": torch.float64,
    }
    names |= {f"i{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)}
    table = json.loads(_native.take_text(_native.lib.ae_describe_lowerings(0)))
    return {row["op"]: tuple(names[t] for t in row["types"]) for row in sorted(table, key=lambda row: row["op"])}


# Values

SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    3.0,
    -3.0,
    20.0,
    20.5,
    -20.0,
    88.7,
    -103.0,
    1e-8,
    -1e8,
    2.5,
    -1.5,
    1e-40,
    -1e-45,
    3e38,
)
SPECIAL += (-3e38, 65504.0, float("inf"), -float("inf"), float("nan"))


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    count = 1
    for size in shape:
        count *= size
    where = torch.rand(count, generator=generator)
    if dtype.is_floating_point:
        made = torch.randn(count, generator=generator, dtype=torch.float64)
        made *= torch.exp2(torch.randint(-7, 6, (count,), generator=generator).double())
        special = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randint(len(SPECIAL), (count,), generator=generator)]
        return torch.where(where < 0.2, special, made).to(dtype).view(shape)
    info = torch.iinfo(dtype)
    low = 0 if dtype == torch.uint8 else -20
    made = torch.randint(low, 70, (count,), generator=generator)
    special = torch.tensor([info.min, info.max, 0, 1, info.max - 1])[torch.randint(5, (count,), generator=generator)]
    return torch.where(where < 0.15, special, made).to(dtype).view(shape)


# Layouts: each makes a tensor of a shape of its own


def _offset(t: torch.Tensor) -> torch.Tensor:
    flat = torch.cat([t.reshape(-1)[:1].expand(3), t.reshape(-1)])
    return flat[3:].view(t.shape)


def _step(t: torch.Tensor) -> torch.Tensor:
    return torch.stack([t, t], -1)[..., 0]


LAYOUTS: dict[str, Callable[[Callable[[tuple[int, ...]], torch.Tensor]], torch.Tensor]] = {
    "matrix": lambda make: make((6, 37)),
    "transposed": lambda make: make((37, 6)).t(),
    "step": lambda make: _step(make((5, 33))),
    "rows with gaps": lambda make: make((5, 40))[:, :33],
    "every second row": lambda make: make((10, 32))[::2],
    "offset": lambda make: _offset(make((101,))),
    "number": lambda make: make(()),
    "channels last": lambda make: make((2, 3, 4, 5)).contiguous(memory_format=torch.channels_last),
    "permuted": lambda make: make((3, 4, 5)).permute(2, 0, 1),
}
OTHERS = ("row", "column", "expanded", "number", "transposed")  # what the second tensor may be beside a (6, 64) one


def other_of(kind: str, make: Callable[[tuple[int, ...]], torch.Tensor]) -> torch.Tensor:
    if kind == "row":
        return make((64,))
    if kind == "column":
        return make((6, 1))
    if kind == "expanded":
        return make((6, 1)).expand(6, 64)
    return make(()) if kind == "number" else make((64, 6)).t()


# Calls


@dataclass
class Form:
    """How an op is called: `call(*tensors)`; which of the tensors are masks; whether it is made for these dtypes."""

    call: Callable[..., Any]
    tensors: int = 1
    masks: tuple[int, ...] = ()
    dtypes: tuple[torch.dtype, ...] = DTYPES


@dataclass
class Call:
    label: str
    call: Callable[..., Any]
    arguments: Any
    results: list[Any] = field(default_factory=list)


def _unary(name: str) -> list[Form]:
    function = getattr(torch, name, None) or getattr(functional, name)
    forms = [Form(function)]
    if hasattr(torch.Tensor, name + "_"):
        forms.append(Form(lambda a: getattr(a, name + "_")()))
        forms.append(Form(lambda a, b: function(a, out=b), 2) if hasattr(torch, name) else Form(function))
    return forms


def _binary(name: str, dtypes: tuple[torch.dtype, ...] = DTYPES) -> list[Form]:
    function = getattr(torch, name)
    made = [
        Form(function, 2),
        Form(lambda a, b, c: function(a, b, out=c), 3),
        Form(lambda a: function(a, 3)),
        Form(lambda a: function(a, 0.3)),
        Form(lambda a: function(a, torch.tensor(1.7, dtype=torch.float64))),
        Form(lambda a: function(a, torch.tensor(2, dtype=torch.int32))),
        Form(lambda a: function(torch.tensor(1.7), a)),
    ]
    if hasattr(torch.Tensor, name + "_"):
        made += [Form(lambda a, b: getattr(a, name + "_")(b), 2), Form(lambda a: getattr(a, name + "_")(2))]
    for form in made:
        form.dtypes = dtypes
    return made


def _scaled(name: str) -> list[Form]:
    function = getattr(torch, name)
    made = [Form(lambda a, b, k=k: function(a, b, alpha=k), 2) for k in (3, 0.3, -1, 1)]
    return [*made, Form(lambda a: function(a, 0.3, alpha=0.7)), Form(lambda a: function(a, 2, alpha=3))]


def _backward(name: str, *numbers: Any, tensors: int = 2, masks: tuple[int, ...] = ()) -> Form:
    """The numbers follow the tensors."""
    return Form(lambda *t: getattr(aten, name)(*t, *numbers), tensors, masks)


def _loss(name: str, *numbers: Any) -> list[Form]:
    return [Form(lambda a, b, r=r: getattr(aten, name)(a, b, r, *numbers), 2) for r in (0, 1, 2)]


FORMS: dict[str, list[Form]] = {
    **{name: _unary(name) for name in ("sigmoid", "tanh", "neg", "abs", "square", "relu")},
    "_to_copy": [Form(lambda a, d=d: a.to(d, copy=True)) for d in DTYPES],
    "__lshift__": [Form(lambda a, b: a << b, 2, (), I), Form(lambda a: a << 2, 1, (), I)],
    "__rshift__": [Form(lambda a, b: a >> b, 2, (), I), Form(lambda a: a >> 2, 1, (), I)],
    "copy": [Form(lambda a, b: a.copy_(b), 2), Form(lambda a: torch.empty_like(a, dtype=torch.float32).copy_(a))],
    "clone": [Form(torch.clone)],
    "fill": [Form(lambda a: a.fill_(3)), Form(lambda a: a.fill_(2.7)), Form(lambda a: torch.full_like(a, 1))],
    "full_like": [Form(lambda a: torch.full_like(a, 2.7)), Form(lambda a: torch.full_like(a, 2))],
    "ones_like": [Form(torch.ones_like)],
    "zeros_like": [Form(torch.zeros_like)],
    "zero": [Form(lambda a: a.zero_())],
    "rsub": [
        Form(torch.rsub, 2),
        Form(lambda a: 0.3 - a),
        Form(lambda a: torch.rsub(a, 3, alpha=2)),
        Form(lambda a, b: torch.rsub(a, b, alpha=0.3), 2),
    ],
    "clamp": [
        Form(lambda a: a.clamp(-0.3, 0.7)),
        Form(lambda a: a.clamp(1, 7)),
        Form(lambda a: a.clamp(7, 1)),
        Form(lambda a: a.clamp(max=0.7)),
        Form(lambda a: a.clamp(min=float("nan"), max=0.7)),
        Form(lambda a: a.clamp(-0.0, 0.0)),
        Form(torch.clamp, 3),
        Form(lambda a: a.clamp_(0, 5)),
    ],
    "clamp_min": [
        Form(lambda a: torch.clamp_min(a, 0)),
        Form(lambda a: torch.clamp_min(a, -0.0)),
        Form(torch.clamp_min, 2),
    ],
    "clamp_max": [
        Form(lambda a: torch.clamp_max(a, 0)),
        Form(lambda a: torch.clamp_max(a, 0.5)),
        Form(torch.clamp_max, 2),
    ],
    "hardtanh": [Form(functional.hardtanh), Form(lambda a: functional.hardtanh(a, -0.3, 0.7))],
    "where": [
        Form(torch.where, 3, (0,)),
        Form(lambda c, a: torch.where(c, a, 0.3), 2, (0,)),
        Form(lambda c, a: torch.where(c, a, 3), 2, (0,)),
        Form(lambda c, a: torch.where(c, 2, a), 2, (0,)),
    ],
    "masked_fill": [Form(lambda a, m: a.masked_fill(m, 3), 2, (1,)), Form(lambda a, m: a.masked_fill_(m, 1), 2, (1,))],
    "nan_to_num": [Form(torch.nan_to_num), Form(lambda a: torch.nan_to_num(a, 0.3, 4.0, -5.0))],
    "pow": [Form(lambda a, k=k: torch.pow(a, k)) for k in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5)],
    "lerp": [
        *(Form(lambda a, b, w=w: torch.lerp(a, b, w), 2) for w in (0.3, 0.7, 0.5, -0.2, 1.0, 0.0)),
        Form(torch.lerp, 3),
        Form(lambda a, b: a.lerp_(b, 0.1), 2),
    ],
    "addcmul": [
        *(Form(lambda a, b, c, k=k: torch.addcmul(a, b, c, value=k), 3) for k in (1, 2, 0.3)),
        Form(lambda a, b: a.addcmul_(b, b, value=0.1), 2),
    ],
    "addcdiv": [
        *(Form(lambda a, b, c, k=k: torch.addcdiv(a, b, c, value=k), 3) for k in (1, -0.3)),
        Form(lambda a, b: a.addcdiv_(b, b, value=0.1), 2),
    ],
    "softplus": [Form(functional.softplus), Form(lambda a: functional.softplus(a, 0.3, 5.0))],
    "elu": [Form(functional.elu), Form(lambda a: aten.elu(a, 0.3, 0.7, 0.9))],
    "celu": [Form(functional.celu), Form(lambda a: functional.celu(a, 0.3))],
    "leaky_relu": [
        Form(functional.leaky_relu),
        Form(lambda a: functional.leaky_relu(a, 0.3)),
        Form(lambda a: functional.leaky_relu(a, 0.3, True)),
    ],
    "threshold": [Form(lambda a: functional.threshold(a, 3, 7)), Form(lambda a: functional.threshold(a, 0.3, 0.7))],
    "threshold_backward": [_backward("threshold_backward", 0), _backward("threshold_backward", 0.3)],
    "gelu": [Form(functional.gelu), Form(lambda a: functional.gelu(a, approximate="tanh"))],
    "gelu_backward": [Form(aten.gelu_backward, 2), Form(lambda g, a: aten.gelu_backward(g, a, approximate="tanh"), 2)],
    **{
        name: [Form(getattr(aten, name), 2)]
        for name in (
            "sigmoid_backward",
            "tanh_backward",
            "silu_backward",
            "mish_backward",
            "hardsigmoid_backward",
            "hardswish_backward",
        )
    },
    "softplus_backward": [_backward("softplus_backward", 1, 20), _backward("softplus_backward", 0.3, 5.0)],
    "elu_backward": [Form(lambda g, a, r=r: aten.elu_backward(g, 0.3, 0.7, 0.9, r, a), 2) for r in (False, True)],
    "leaky_relu_backward": [_backward("leaky_relu_backward", 0.3, False)],
    "hardtanh_backward": [_backward("hardtanh_backward", -0.3, 0.7)],
    "log_sigmoid_backward": [_backward("log_sigmoid_backward", tensors=3)],
    "mse_loss": _loss("mse_loss"),
    "smooth_l1_loss": [*_loss("smooth_l1_loss", 0.3), *_loss("smooth_l1_loss", 0.0)],
    "huber_loss": _loss("huber_loss", 0.3),
    "mse_loss_backward": [_backward("mse_loss_backward", r, tensors=3) for r in (0, 1, 2)],
    "smooth_l1_loss_backward": [_backward("smooth_l1_loss_backward", r, 0.3, tensors=3) for r in (0, 1, 2)],
    "huber_loss_backward": [_backward("huber_loss_backward", r, 0.3, tensors=3) for r in (0, 1, 2)],
    "native_dropout_backward": [_backward("native_dropout_backward", 1.25, masks=(1,))],
    "div": [
        *_binary("div"),
        # Stock ends the process where it divides the least integer by -1.
        Form(lambda a, b: torch.div(a, b if b.is_floating_point() else b.clamp(min=1), rounding_mode="trunc"), 2),
        Form(lambda a: torch.div(a, 0.3, rounding_mode="trunc")),
    ],
    **{name: [*_binary(name), *_scaled(name)] for name in ("add", "sub")},
}
BINARY = (
    "mul",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
)
BINARY += ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "atan2", "fmod", "remainder")


UNARY = (
    "exp",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "erf",
    "erfc",
    "expm1",
    "log1p",
    "sinh",
    "cosh",
    "exp2",
)
UNARY += (
    "sqrt",
    "rsqrt",
    "reciprocal",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "sign",
    "sgn",
    "isnan",
    "isinf",
    "logical_not",
)
UNARY += ("bitwise_not", "silu", "mish", "selu", "hardswish", "hardsigmoid")


def forms_of(name: str) -> list[Form]:
    if name in FORMS:
        return FORMS[name]
    if name in BINARY:  # (the smallest integer % -1 ends the process, on the CPU too)
        return _binary(name, F if name in ("fmod", "remainder") else DTYPES)
    if hasattr(torch, name) or hasattr(functional, name):
        return _unary(name)
    return []


def own_calls(name: str, dtype: torch.dtype, sizes: tuple[int, ...], everything: bool = True) -> Iterator[Call]:
    """Each form on all sizes, layouts and, where it takes two tensors, kinds of second ones; then on mixed dtypes."""
    for index, form in enumerate(forms_of(name)):
        if dtype not in form.dtypes:
            continue
        seed = iter(range(1000 * index, 1000 * index + 999))

        def made(
            position: int, own: torch.dtype, form: Form = form, seed: Iterator[int] = seed
        ) -> Callable[[tuple[int, ...]], torch.Tensor]:
            return lambda shape: values(shape, torch.bool if position in form.masks else own, next(seed))

        for size in sizes:
            yield Call(f"form {index} size {size}", form.call, [made(i, dtype)((size,)) for i in range(form.tensors)])
        if not everything:
            continue
        for layout, make in LAYOUTS.items():
            yield Call(f"form {index} {layout}", form.call, [make(made(i, dtype)) for i in range(form.tensors)])
        if form.tensors >= 2:
            for kind in OTHERS:
                tensors = [made(0, dtype)((6, 64)), other_of(kind, made(1, dtype))]
                tensors += [made(i, dtype)((6, 64)) for i in range(2, form.tensors)]
                yield Call(f"form {index} second {kind}", form.call, tensors)
            for mixed in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool):
                if mixed != dtype:
                    tensors = [made(i, mixed if i == form.tensors - 1 else dtype)((65,)) for i in range(form.tensors)]
                    yield Call(f"form {index} with {mixed}", form.call, tensors)


def _infos(name: str) -> Iterator[Any]:
    for info in methods.op_db:
        if info.name in (name, "nn.functional." + name, "special." + name) or getattr(info, "aten_name", "") == name:
            yield info


def supports(name: str, dtype: torch.dtype) -> bool:
    return any(info.supports_dtype(dtype, "cpu") for info in _infos(name))


def _foreach_infos(name: str) -> Iterator[Any]:
    for table in ("unary", "binary", "pointwise", "other"):
        for info in getattr(methods, f"foreach_{table}_op_db", ()):
            if info.name == "_foreach_" + name:
                yield info


def info_calls(name: str, dtype: torch.dtype, most: int) -> Iterator[Call]:
    """OpInfo's samples: forward with gradients, in place, out=."""
    for info in _infos(name):
        if not info.supports_dtype(dtype, "cpu"):
            continue
        grad = info.supports_autograd and dtype.is_floating_point and dtype in info.supported_backward_dtypes("cpu")
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=grad))
        for index, sample in enumerate(samples[:: max(1, len(samples) // most)]):

            def forward(value: Any, args: Any, kwargs: Any, info: Any = info, grad: bool = grad) -> Any:
                if not grad:
                    return info(value, *args, **kwargs)
                with torch.enable_grad():
                    result = info(value, *args, **kwargs)
                    leaves = [t for t in trees.tensors((value, args, kwargs)) if t.requires_grad]
                    outputs = [t for t in trees.tensors(result) if t.requires_grad]
                    if not leaves or not outputs:
                        return result
                    grads = torch.autograd.grad(
                        outputs, leaves, [torch.full_like(t, 0.7) for t in outputs], allow_unused=True
                    )
                return result, grads

            inputs = (sample.input, sample.args, sample.kwargs)
            yield Call(f"sample {index}", forward, inputs)
            if info.inplace_variant is not None:

                def inplace(value: Any, args: Any, kwargs: Any, info: Any = info) -> Any:
                    return info.inplace_variant(value, *args, **kwargs), value

                plain = trees.copy_to(inputs, "cpu")
                yield Call(f"sample {index} in place", inplace, trees.pytree.tree_map(_plain, plain))
    for info in _foreach_infos(name):
        if not info.supports_dtype(dtype, "cpu"):
            continue
        samples = [
            s
            for s in info.sample_inputs("cpu", dtype, noncontiguous=False, allow_higher_dtype_scalars=True)
            if not _complex(s.args)
        ]
        for index, sample in enumerate(samples[:: max(1, len(samples) // most)]):
            inputs = (sample.input, sample.args, {k: v for k, v in sample.kwargs.items() if k != "disable_fastpath"})
            yield Call(
                f"list {index}",
                lambda value, args, kwargs, info=info: info.method_variant(value, *args, **kwargs),
                inputs,
            )
            if info.inplace_variant is not None:
                yield Call(
                    f"list {index} in place",
                    lambda value, args, kwargs, info=info: (info.inplace_variant(value, *args, **kwargs), value)[1],
                    inputs,
                )


def _complex(tree: Any) -> bool:
    """A complex number beside real tensors."""
    return any(isinstance(leaf, complex) for leaf in trees.pytree.tree_leaves(tree))


def _plain(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


# Running


def _run(call: Call, device: str) -> Any:
    """The results and the arguments afterwards, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = trees.copy_to(call.arguments, device)
        try:
            return (call.call(*arguments), arguments)
        except Exception as error:
            return error


def problems(calls: list[Call], rounds: int = 3, batch: int = 200) -> tuple[list[str], set[str]]:
    """What differs from the CPU when everything is fused, and the ops in the loops that ran."""
    found, fused = [], set[str]()
    with forced(compare=0), torch.no_grad():
        for start in range(0, len(calls), batch):
            some = []
            for call in calls[start : start + batch]:
                expected = _run(call, "cpu")
                if not isinstance(expected, Exception):
                    some.append((call, [t.detach().clone() for t in trees.tensors(expected)]))
            for number in range(rounds):
                last = number == rounds - 1
                with launched() if last else _nothing() as regions:
                    results = [_run(call, "neuron") for call, _ in some]
                    adaptive_eager.flush()
                if regions is not None:
                    fused.update(op for name in loops(regions) for op in name.split("-"))
                for (call, expected), result in zip(some, results, strict=True):
                    if isinstance(result, Exception):
                        found.append(f"{call.label}: {type(result).__name__}: {str(result)[:200]}")
                        continue
                    for a, b in zip(trees.tensors(result), expected, strict=True):
                        if words := same_bits(a, b):
                            what = f"round {number}, {call.label} {tuple(b.shape)} {b.dtype}"
                            found.append(f"{what}: {_where(a, b) or words[:200]}")
                            break
                del results
                settle()
    return found, fused


def _where(a: torch.Tensor, b: torch.Tensor) -> str:
    a, b = a.detach().cpu().reshape(-1), b.detach().reshape(-1)
    if a.shape != b.shape or a.dtype != b.dtype:
        return ""
    bad = [i for i in range(min(len(a), 5000)) if same_bits(a[i], b[i])][:4]
    return f"at {bad} {[a[i].item() for i in bad]}, expected {[b[i].item() for i in bad]}"


class _nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def shown(found: list[str]) -> str:
    return "\n".join(found[:12]) + (f"\n... and {len(found) - 12} more" if len(found) > 12 else "")


__all__ = ["DTYPES", "FEW_SIZES", "SIZES", "info_calls", "own_calls", "problems", "rows", "shown", "supports"]
