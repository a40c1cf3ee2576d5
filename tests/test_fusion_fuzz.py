"""Random programs over a few tensors, run several times with other numbers: at every read the CPU's bits.

AE_FUZZ_PROGRAMS says how many (default 200), AE_FUZZ_FIRST the first seed. A mismatch is reported with the shortest
program that shows it. `python tests/test_fusion_fuzz.py SEED` runs and prints one.
"""

import os
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import same_bits
from fusion import forced, no_refusals, settle

PROGRAMS = int(os.environ.get("AE_FUZZ_PROGRAMS", "200"))
FIRST = int(os.environ.get("AE_FUZZ_FIRST", "0"))
BATCH = 10
ROUNDS = 5
LARGEST = 200000  # elements of a tensor

Step = tuple[Any, ...]
DTYPES = (torch.float32,) * 5 + (torch.float64, torch.bfloat16, torch.bfloat16, torch.int64, torch.bool)
UNARY = (
    "neg",
    "abs",
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "sqrt",
    "square",
    "floor",
    "sign",
    "silu",
    "reciprocal",
    "isnan",
)
UNARY += ("logical_not", "rsqrt", "log", "round")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "lt", "ge", "ne", "logical_and", "fmod", "atan2")
INPLACE = ("add_", "sub_", "mul_", "div_", "clamp_min_", "clamp_max_")


def apart(t: torch.Tensor) -> bool:
    """A list's op refuses what is expanded only when it comes to it."""
    return all(stride > 0 for stride in t.stride())


class Machine:
    """Runs a program on one device. Steps choose operands among what is alive; one that the CPU refuses is left out."""

    def __init__(self, device: str, numbers: int, refused: set[int] | None) -> None:
        self.device = device
        self.seed = numbers
        self.learn = refused is None  # the CPU: finds out what is refused
        self.refused: set[int] = set() if refused is None else refused
        self.alive: list[torch.Tensor] = []
        self.reads: list[torch.Tensor] = []

    def number(self, integer: bool = False) -> Any:
        value = self.numbers.choice((-2.5, -1.0, 0.0, 0.3, 0.5, 1.0, 1.7, 2.0, 3.0)) + self.numbers.choice(
            (0, 0, 0.125)
        )
        return int(value) if integer else value

    def pick(self, choice: int, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> torch.Tensor:
        candidates = [t for t in self.alive if fits(t)]
        if not candidates:
            raise IndexError("nothing fits")
        return candidates[choice % len(candidates)]

    def floating(self, choice: int) -> torch.Tensor:
        return self.pick(choice, lambda t: t.is_floating_point())

    def like(self, other: torch.Tensor, choice: int) -> torch.Tensor:
        """Something that broadcasts with it, to its shape."""

        def fits(t: torch.Tensor) -> bool:
            try:
                return torch.broadcast_shapes(t.shape, other.shape) == other.shape
            except RuntimeError:
                return False

        return self.pick(choice, fits)

    def run(self, program: list[Step]) -> None:
        for index, (kind, *rest) in enumerate(program):
            if index in self.refused:
                continue
            self.numbers = random.Random(self.seed * 1000 + index)
            try:
                getattr(self, kind)(*rest)
            except (RuntimeError, IndexError, TypeError, ArithmeticError):
                if not self.learn:
                    raise
                self.refused.add(index)

    def keep(self, t: torch.Tensor) -> None:
        if t.numel() <= LARGEST:
            self.alive.append(t)

    # steps

    def make(self, shape: tuple[int, ...], dtype: torch.dtype, kind: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed + int(1000 * self.numbers.random()))
        if dtype == torch.bool:
            made = torch.rand(shape, generator=generator) < 0.5
        elif dtype == torch.int64:
            made = torch.randint(-20, 20, shape, generator=generator)
        else:
            made = torch.randn(shape, generator=generator).mul_(1 + kind % 3).to(dtype)
        if kind == 5 and made.is_floating_point() and made.numel() > 3:
            special = torch.tensor([float("nan"), float("inf"), -0.0, 1e-40], dtype=dtype)
            made.view(-1)[:: max(1, made.numel() // 4)][:4] = special[
                : made.view(-1)[:: max(1, made.numel() // 4)][:4].numel()
            ]
        self.keep(made.to(self.device))

    def unary(self, name: str, a: int) -> None:
        self.keep(getattr(torch if hasattr(torch, name) else torch.nn.functional, name)(self.pick(a)))

    def binary(self, name: str, a: int, b: int) -> None:
        first = self.pick(a)
        self.keep(getattr(torch, name)(first, self.like(first, b)))

    def binary_number(self, name: str, a: int, integer: bool) -> None:
        self.keep(getattr(torch, name)(self.pick(a), self.number(integer)))

    def number_binary(self, name: str, a: int) -> None:
        value, t = self.number(), self.pick(a)
        self.keep({"sub": lambda: value - t, "div": lambda: value / t, "add": lambda: value + t}[name]())

    def inplace(self, name: str, a: int, b: int) -> None:
        target = self.pick(a)
        getattr(target, name)(self.like(target, b))

    def inplace_number(self, name: str, a: int, integer: bool) -> None:
        getattr(self.pick(a), name)(self.number(integer))

    def inplace_unary(self, name: str, a: int) -> None:
        getattr(self.pick(a), name + "_")()

    def host_number(self, a: int, double: bool) -> None:
        """A 0-dim tensor on the CPU as operand."""
        number = torch.tensor(self.number(), dtype=torch.float64 if double else torch.float32)
        self.keep(self.floating(a) * number)

    def scaled(self, name: str, a: int, b: int) -> None:
        first, number = self.pick(a), self.number()
        integer = not first.is_floating_point()
        self.keep(getattr(torch, name)(first, self.like(first, b), alpha=int(number) if integer else number))

    def out(self, name: str, a: int, b: int, c: int) -> None:
        first = self.pick(a)
        other = self.like(first, b)
        wanted = torch.result_type(first, other)
        target = self.pick(
            c, lambda t: t.shape == first.shape and t.dtype == wanted and t is not first and t is not other
        )
        getattr(torch, name)(first, other, out=target)

    def where(self, c: int, a: int, b: int) -> None:
        first = self.pick(a)
        condition = self.pick(c, lambda t: t.dtype == torch.bool)
        self.keep(torch.where(condition, first, self.like(first, b)))

    def masked_fill(self, a: int, c: int, inplace: bool) -> None:
        target = self.pick(a)
        mask = self.pick(c, lambda t: t.dtype == torch.bool and t.shape == target.shape)
        value = self.number(not target.is_floating_point())
        if inplace:
            target.masked_fill_(mask, value)
        else:
            self.keep(target.masked_fill(mask, value))

    def clamp(self, a: int) -> None:
        self.keep(self.pick(a).clamp(self.number(), self.number()))

    def lerp(self, a: int, b: int, inplace: bool) -> None:
        first = self.floating(a)
        other = self.pick(b, lambda t: t.shape == first.shape and t.dtype == first.dtype)
        if inplace:
            first.lerp_(other, self.number())
        else:
            self.keep(torch.lerp(first, other, self.number()))

    def addc(self, name: str, a: int, b: int, c: int, inplace: bool) -> None:
        first = self.floating(a)
        second, third = (self.pick(i, lambda t: t.shape == first.shape and t.dtype == first.dtype) for i in (b, c))
        if inplace:
            getattr(first, name + "_")(second, third, value=self.number())
        else:
            self.keep(getattr(torch, name)(first, second, third, value=self.number()))

    def copy(self, a: int, b: int) -> None:
        target = self.pick(a)
        target.copy_(self.like(target, b))

    def fill(self, a: int, zero: bool) -> None:
        target = self.pick(a)
        if zero:
            target.zero_()
        else:
            target.fill_(self.number(not target.is_floating_point()))

    def to(self, a: int, dtype: torch.dtype) -> None:
        self.keep(self.pick(a).nan_to_num(0.0, 9.0, -9.0).clamp(-1000, 1000).to(dtype))

    def view(self, kind: str, a: int, n: int) -> None:
        t = self.pick(a, lambda t: t.dim() > 0)
        if kind == "t":
            self.keep(t.transpose(0, -1))
        elif kind == "flat":
            self.keep(t.view(-1))
        elif kind == "row":
            self.keep(t[n % t.shape[0]])
        elif kind == "step":
            self.keep(t[..., ::2])
        elif kind == "tail":
            self.keep(t[1:])
        elif kind == "columns":
            self.keep(t.chunk(2, -1)[n % 2])
        elif kind == "expand":
            self.keep(t.unsqueeze(0).expand(2, *t.shape))
        elif kind == "column":
            self.keep(t[..., n % t.shape[-1]].unsqueeze(-1))
        elif kind == "diagonal":
            self.keep(t.diagonal(0, 0, -1))
        elif kind == "overlap":
            flat = t.view(-1)
            side = min(4, flat.numel() // 2)
            self.keep(flat.as_strided((side, side), (1, 1), flat.storage_offset()))

    def reduce(self, name: str, a: int, dim: int, keepdim: bool) -> None:
        t = self.pick(a, lambda t: t.dim() > 0)
        self.keep(getattr(torch, name)(t, dim if dim < t.dim() else -1, keepdim))

    def scan(self, a: int) -> None:
        self.keep(self.floating(a).cumsum(-1))

    def softmax(self, a: int) -> None:
        self.keep(self.floating(a).softmax(-1))

    def matmul(self, a: int, b: int) -> None:
        first = self.pick(a, lambda t: t.dim() == 2 and t.is_floating_point())
        other = self.pick(b, lambda t: t.dim() == 2 and t.dtype == first.dtype and first.shape[1] in t.shape)
        other = other if other.shape[0] == first.shape[1] else other.t()
        if first.shape[0] * other.shape[1] <= LARGEST:
            self.keep(first @ other)

    def foreach(self, name: str, a: int, others: list[int], inplace: bool) -> None:
        first = self.pick(a, apart)
        tensors = [first] + [self.pick(i, lambda t: t.dtype == first.dtype and apart(t)) for i in others]
        value = self.number(not first.is_floating_point())
        call = getattr(torch, f"_foreach_{name}{'_' if inplace else ''}")
        made = call(tensors) if name in ("neg", "sqrt", "abs") else call(tensors, value)
        for t in made or () if not inplace else ():
            self.keep(t)

    def foreach_pair(self, name: str, a: int, others: list[int], inplace: bool) -> None:
        first = self.pick(a, apart)
        same = [self.pick(i, lambda t: t.dtype == first.dtype and t.shape == first.shape and apart(t)) for i in others]
        made = getattr(torch, f"_foreach_{name}{'_' if inplace else ''}")([first, *same], [*same, first])
        for t in made or () if not inplace else ():
            self.keep(t)

    def random(self, a: int, kind: int) -> None:
        t = self.floating(a)
        if kind == 0:
            self.keep(torch.rand_like(t))
        elif kind == 1:
            t.uniform_()
        else:
            self.keep(torch.nn.functional.dropout(t, 0.3))

    def opaque_write(self, a: int, kind: int) -> None:
        """Ops without a lowering that write part of a tensor."""
        t = self.pick(a, lambda t: t.dim() > 0)
        if kind == 0:
            t[1:].cumsum_(-1)
        elif kind == 1:
            t.index_fill_(0, torch.tensor([0], device=self.device), 1)
        else:
            t.tril_()

    def backward(self, a: int, b: int) -> None:
        x = self.floating(a).detach().clone().requires_grad_()
        with torch.enable_grad():
            y = (x * self.like(x, b).detach()).sigmoid().mul(self.number())
            z = torch.nn.functional.silu(y + x).sum()
        (grad,) = torch.autograd.grad(z, x)
        self.keep(grad)

    def drop(self, a: int) -> None:
        if len(self.alive) > 2:
            del self.alive[a % len(self.alive)]

    def read(self, a: int) -> None:
        self.reads.append(self.pick(a).detach().to("cpu", copy=True))


def generate(seed: int) -> list[Step]:
    r = random.Random(seed)
    m, n = r.choice((1, 2, 3, 5, 8, 16, 33, 64)), r.choice((1, 2, 3, 4, 7, 16, 31, 32, 65, 130))
    if seed % 25 == 7:
        m, n = r.choice(((1, 40000), (2, 32768), (200, 170), (64, 1024)))
    shapes = [(m, n)] * 4 + [(n,), (m, 1), (), (1, n), (2, m, n), (n, m)]

    def index() -> int:
        return r.randrange(1000)

    def recent() -> int:
        return -r.randint(1, 4)

    def any_() -> int:
        return recent() if r.random() < 0.5 else index()

    program: list[Step] = [("make", (m, n), torch.float32, r.randrange(7), index())]
    for _ in range(r.randint(1, 4)):
        program.append(("make", r.choice(shapes), r.choice(DTYPES), r.randrange(7), index()))
    makers: list[tuple[int, Callable[[], Step]]] = [
        (10, lambda: ("unary", r.choice(UNARY), any_())),
        (14, lambda: ("binary", r.choice(BINARY), any_(), any_())),
        (
            8,
            lambda: (
                "binary_number",
                r.choice((*BINARY[:4], "eq", "lt", "remainder", "fmod")),
                any_(),
                r.random() < 0.4,
            ),
        ),
        (3, lambda: ("number_binary", r.choice(("sub", "div", "add")), any_())),
        (9, lambda: ("inplace", r.choice(INPLACE[:4]), any_(), any_())),
        (7, lambda: ("inplace_number", r.choice(INPLACE), any_(), r.random() < 0.4)),
        (3, lambda: ("inplace_unary", r.choice(("neg", "relu", "sigmoid", "square", "abs")), any_())),
        (2, lambda: ("host_number", any_(), r.random() < 0.5)),
        (4, lambda: ("scaled", r.choice(("add", "sub")), any_(), any_())),
        (4, lambda: ("out", r.choice(("add", "mul", "sub")), any_(), any_(), any_())),
        (4, lambda: ("where", any_(), any_(), any_())),
        (3, lambda: ("masked_fill", any_(), any_(), r.random() < 0.5)),
        (3, lambda: ("clamp", any_())),
        (3, lambda: ("lerp", any_(), any_(), r.random() < 0.5)),
        (4, lambda: ("addc", r.choice(("addcmul", "addcdiv")), any_(), any_(), any_(), r.random() < 0.5)),
        (5, lambda: ("copy", any_(), any_())),
        (3, lambda: ("fill", any_(), r.random() < 0.5)),
        (5, lambda: ("to", any_(), r.choice(DTYPES))),
        (
            14,
            lambda: (
                "view",
                r.choice(
                    (
                        "t",
                        "flat",
                        "row",
                        "step",
                        "tail",
                        "columns",
                        "columns",
                        "expand",
                        "column",
                        "diagonal",
                        "overlap",
                    )
                ),
                any_(),
                index(),
            ),
        ),
        (5, lambda: ("reduce", r.choice(("sum", "mean", "amax")), any_(), r.randrange(2), r.random() < 0.6)),
        (1, lambda: ("scan", any_())),
        (1, lambda: ("softmax", any_())),
        (2, lambda: ("matmul", any_(), any_())),
        (
            4,
            lambda: (
                "foreach",
                r.choice(("add", "mul", "neg", "sqrt", "abs", "div")),
                any_(),
                [any_() for _ in range(r.randint(1, 3))],
                r.random() < 0.5,
            ),
        ),
        (
            3,
            lambda: (
                "foreach_pair",
                r.choice(("add", "mul", "sub")),
                any_(),
                [any_() for _ in range(r.randint(1, 3))],
                r.random() < 0.5,
            ),
        ),
        (2, lambda: ("random", any_(), r.randrange(3))),
        (2, lambda: ("opaque_write", any_(), r.randrange(3))),
        (1, lambda: ("backward", any_(), any_())),
        (12, lambda: ("drop", index())),
        (2, lambda: ("read", any_())),
    ]
    weights = [weight for weight, _ in makers]
    for _ in range(r.choice((4, 8, 15, 25, 40))):
        program.append(r.choices([make for _, make in makers], weights)[0]())
    return program


def threads_of(seed: int, number: int) -> int:
    return 1 + number % 2 if seed % 50 == 7 else 1


def mismatch(program: list[Step], seed: int, rounds: int = ROUNDS) -> str:
    """Empty, or where the device's bits differ from the CPU's."""
    for number in range(rounds):
        torch.set_num_threads(threads_of(seed, number))
        with torch.no_grad():
            torch.manual_seed(number)
            cpu = Machine("cpu", number, None)
            cpu.run(program)
            torch.manual_seed(number)
            device = Machine("neuron", number, cpu.refused)
            try:
                device.run(program)
                pairs = zip([*device.reads, *device.alive], [*cpu.reads, *cpu.alive], strict=True)
                for i, (a, b) in enumerate(pairs):
                    if words := same_bits(a, b):
                        what = f"read {i}" if i < len(cpu.reads) else f"tensor {i - len(cpu.reads)}"
                        return f"round {number}, {what} {b.dtype} {tuple(b.shape)}: {words[:400]}"
            except Exception as error:
                return f"round {number}: {type(error).__name__}: {str(error)[:400]}"
            del device
        settle()
    return ""


def shorten(program: list[Step], seed: int) -> tuple[list[Step], str]:
    words, size = "", len(program)
    while size > 0:
        at = 0
        while at < len(program):
            shorter = program[:at] + program[at + size :]
            if shorter and (found := mismatch(shorter, seed, ROUNDS + 2)):
                program, words = shorter, found
            else:
                at += size
        size //= 2
    return program, words


def report(seed: int, words: str, program: list[Step]) -> str:
    return "\n".join([f"program {seed}: {words}", *(f"  {i}: {step}" for i, step in enumerate(program))])


def run(first: int, count: int) -> list[str]:
    failures = []
    for seed in range(first, first + count):
        program = generate(seed)
        if words := mismatch(program, seed):
            with forced(**conditions(seed) | {"compare": 0}):
                program, shorter = shorten(program, seed)
            failures.append(report(seed, words + "\n  shortened: " + shorter, program))
    return failures


def conditions(first: int) -> dict[str, int]:
    """Every second batch asks whether what was compared at its first launch was right; in half of them rows are passed
    on in blocks, however few they are."""
    batch = first // BATCH
    return {"compare": batch % 2} | ({"tile_from_bytes": 0, "tile_bytes": 512} if batch // 2 % 2 else {})


@pytest.fixture(autouse=True)
def threads(reset: None) -> Any:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, BATCH))
def test_random_programs_give_the_bits_of_the_cpu(first: int) -> None:
    with forced(**conditions(first)), no_refusals():
        failures = run(first, BATCH)
    assert not failures, "\n".join(failures)


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for start in range(first, first + count, BATCH):
        with forced(**conditions(start)):
            try:
                with no_refusals():
                    for text in run(start, min(BATCH, first + count - start)):
                        print(text, flush=True)
            except AssertionError as error:
                print(f"programs {start}...: refused {error}", flush=True)


if __name__ == "__main__":
    main()
