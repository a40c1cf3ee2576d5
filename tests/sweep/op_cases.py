"""Cases of an OpInfo entry with a dtype."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from . import skips, trees
from .cases import CPU, Case, gradients, seed

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
SAMPLES = 24  # at most, per op and dtype
EXTRA_SAMPLES = 3  # of these also non-contiguous, conjugated, negated
OUT_SAMPLES = 6  # of these also out=, in all its shapes


def op_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def pairs() -> Iterator[tuple[Any, torch.dtype]]:
    for op in op_db:
        for dtype in DTYPES:
            if op.supports_dtype(dtype, CPU):
                yield op, dtype


def few(items: list[Any], count: int) -> list[int]:
    """Indices of at most `count` items: each signature once before any twice, spread evenly."""
    seen: dict[str, int] = {}
    ranked = []
    for index, item in enumerate(items):
        signature = _signature(item)
        seen[signature] = seen.get(signature, -1) + 1
        ranked.append((seen[signature], index))
    ranked.sort()
    first = [r for r in ranked if r[0] == 0]
    if len(first) > count:
        ranked = [first[i * len(first) // count] for i in range(count)]
    return sorted(index for _rank, index in ranked[:count])


def _signature(sample: Any) -> str:
    def of(leaf: Any) -> Any:
        return (
            (tuple(leaf.shape), leaf.stride() if leaf.layout == torch.strided else 0, leaf.dtype)
            if isinstance(leaf, torch.Tensor)
            else leaf
        )

    return repr(trees.pytree.tree_map(of, (sample.input, sample.args, sample.kwargs)))


def differentiable(op: Any, dtype: torch.dtype) -> bool:
    return (
        op.supports_autograd
        and dtype in op.supported_backward_dtypes(CPU)
        and dtype.is_floating_point | dtype.is_complex
    )


class OpCases:
    """Everything that is run for one op and dtype."""

    def __init__(self, op: Any, dtype: torch.dtype) -> None:
        self.op, self.dtype = op, dtype
        self.grad = differentiable(op, dtype)
        self.values = not op.has_nondeterministic_output  # empty and its like
        samples = list(op.sample_inputs(CPU, dtype, requires_grad=self.grad))
        self.total = len(samples)
        self.samples = [(str(i), samples[i]) for i in few(samples, SAMPLES)]

    def cases(self) -> list[Case]:
        made = []
        for rank, (label, sample) in enumerate(self.samples):
            number = 1000 + rank
            made.append(self.call(label, sample, number, self.op, "forward", backward=self.grad))
            if self.grad and rank < OUT_SAMPLES:
                made.append(self.call(label, sample, number, self.op, "no_grad", no_grad=True))
            if self.op.inplace_variant is not None:
                made.append(self.inplace(label, sample, number))
            if self.op.supports_out and rank < OUT_SAMPLES:
                made += self.outs(label, sample, number)
            if rank < EXTRA_SAMPLES:
                for kind, changed in self.altered(sample):
                    made.append(self.call(f"{label} {kind}", changed, number, self.op, "forward", backward=self.grad))
        return made

    def altered(self, sample: Any) -> Iterator[tuple[str, Any]]:
        if not trees.tensors((sample.input, sample.args, sample.kwargs)):
            return
        strided = None
        with contextlib.suppress(Exception):  # some samples hold what it cannot copy
            strided = sample.noncontiguous()
        if strided is not None:
            yield "non-contiguous", strided
        if not isinstance(sample.input, torch.Tensor) or sample.input.layout != torch.strided:
            return
        if self.dtype.is_complex and self.op.test_conjugated_samples:
            yield "conjugated", _with_input(sample, sample.input.detach().conj().requires_grad_(self.grad))
        if self.dtype.is_complex | self.dtype.is_floating_point and self.op.test_neg_view:
            yield "negated", _with_input(sample, torch._neg_view(sample.input.detach()).requires_grad_(self.grad))

    def arguments(self, sample: Any, device: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        if op_name(self.op) in skips.HOST_ARGUMENTS:
            value = trees.copy_to(sample.input, device)
            args, kwargs = trees.copy_to((sample.args, sample.kwargs), CPU)
            return value, args, kwargs
        value, args, kwargs = trees.copy_to((sample.input, sample.args, sample.kwargs), device)
        if "device" in kwargs or self.op.is_factory_function:
            kwargs["device"] = device
        return value, args, kwargs

    def call(
        self, label: str, sample: Any, number: int, fn: Any, part: str, *, backward: bool = False, no_grad: bool = False
    ) -> Case:
        def run(device: str) -> tuple[Any, Any]:
            value, args, kwargs = self.arguments(sample, device)
            inputs = (value, args, kwargs)
            seed(number)
            with torch.set_grad_enabled(backward):
                result = fn(value, *args, **kwargs)
            grads = gradients(sample.output_process_fn_grad(result), inputs, device) if backward else ()
            return (result, grads), inputs

        return Case(part, f"sample {label} {part}", run, self.values)

    def inplace(self, label: str, sample: Any, number: int) -> Case:
        def run(device: str) -> tuple[Any, Any]:
            value, args, kwargs = self.arguments(sample, device)
            kwargs.pop("out", None)
            seed(number)
            with torch.no_grad():
                result = self.op.inplace_variant(value, *args, **kwargs)
            return result, (value, args, kwargs)

        return Case("inplace", f"sample {label} inplace", run, self.values)

    def outs(self, label: str, sample: Any, number: int) -> list[Case]:
        """out= of the right size, of a wrong one, empty, strided, and of another dtype."""
        try:
            with torch.no_grad():
                value, args, kwargs = self.arguments(sample, CPU)
                seed(number)
                result = self.op(value, *args, **kwargs)
        except Exception:
            return []
        single = isinstance(result, torch.Tensor)
        shapes = trees.tensors(result)
        if not shapes or any(t.layout != torch.strided for t in shapes):
            return []

        def case(kind: str, make: Any) -> Case:
            def run(device: str) -> tuple[Any, Any]:
                value, args, kwargs = self.arguments(sample, device)
                made = [make(t.detach()) for t in shapes]
                out = trees.copy_to(made[0] if single else tuple(made), device)
                seed(number)
                with torch.no_grad():
                    result = self.op(value, *args, **kwargs, out=out)
                return (result, out), (value, args, kwargs, out)

            return Case("out", f"sample {label} out={kind}", run, self.values)

        return [case(kind, make) for kind, make in OUTS.items()]


def _with_input(sample: Any, value: torch.Tensor) -> Any:
    changed = type(sample)(value, args=sample.args, kwargs=sample.kwargs)
    changed.output_process_fn_grad = sample.output_process_fn_grad
    return changed


def _strided(t: torch.Tensor) -> torch.Tensor:
    return torch.ones((*t.shape, 2), dtype=t.dtype)[..., 1]


OUTS: dict[str, Any] = {
    "right": torch.ones_like,
    "wrong size": lambda t: torch.ones((*t.shape, 2), dtype=t.dtype),
    "empty": lambda t: torch.ones(0, dtype=t.dtype),
    "strided": _strided,
    "transposed": lambda t: torch.ones(t.shape[::-1], dtype=t.dtype).permute(*range(t.dim())[::-1]),
    "other dtype": lambda t: torch.ones_like(t, dtype=torch.float64 if t.dtype != torch.float64 else torch.float32),
}


def error_cases(op: Any) -> list[Case]:
    """The inputs that the entry itself says must be refused."""
    made = []
    if op.error_inputs_func is None:
        return made
    for index, refused in enumerate(op.error_inputs(CPU)):
        sample = refused.sample_input

        def run(device: str, sample: Any = sample) -> tuple[Any, Any]:
            value, args, kwargs = trees.copy_to((sample.input, sample.args, sample.kwargs), device)
            if "device" in kwargs or op.is_factory_function:
                kwargs["device"] = device
            seed(7)
            return op(value, *args, **kwargs), (value, args, kwargs)

        made.append(Case("errors", f"refused input {index}", run))
    return made
