"""A case is a program that runs on any device; `check` runs it everywhere and says where it differs from CPU."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import adaptive_eager

from . import trees

CPU, NEURON = "cpu", "neuron"
ADAPTIVE_RUNS = 3  # the first learns, the others are recorded; the last one reads nothing before all cases have run


@dataclass
class Case:
    """`run(device)` makes fresh inputs, runs and returns (results, arguments), or raises."""

    part: str  # forward, backward, inplace, out, errors, ...: what a skip may name
    label: str
    run: Callable[[str], tuple[Any, Any]]
    values: bool = True  # False: the results are uninitialised memory


@dataclass
class Failure:
    mode: str  # eager, adaptive
    part: str
    label: str
    run: int
    words: str

    def __str__(self) -> str:
        return f"{self.mode} run {self.run}, {self.label}: {self.words}"


@dataclass
class Outcome:
    results: Any = None
    arguments: Any = None
    error: BaseException | None = None


@dataclass
class Verdict:
    cases: int = 0
    failures: list[Failure] = field(default_factory=list)
    raised: int = 0  # cases that CPU refuses
    recorded: int = 0  # ops of the adaptive runs after the first
    direct: int = 0  # of these runs, copies from and to the host left out


def start(case: Case, device: str) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results, arguments = case.run(device)
            return Outcome(results, arguments)
        except Exception as error:
            return Outcome(error=error.with_traceback(None))


def read(case: Case, outcome: Outcome) -> list[trees.Leaf]:
    found = trees.describe(outcome.results, outcome.arguments, case.values)
    return found + trees.describe(outcome.arguments, (), case.values)


def differs(case: Case, expected: Outcome, wanted: list[trees.Leaf], actual: Outcome) -> str | None:
    want, got = expected.error, actual.error
    if want is not None and got is None:
        return f"raised nothing, expected {type(want).__name__}: {_line(want)}"
    if want is None and got is not None:
        return f"raised {type(got).__name__}: {_line(got)}"
    if want is not None and got is not None:
        if type(want) is type(got):
            return None
        return f"raised {type(got).__name__}: {_line(got)}, expected {type(want).__name__}: {_line(want)}"
    try:
        found = read(case, actual)
    except Exception as error:
        return f"reading raised {type(error).__name__}: {_line(error)}"
    return trees.difference(wanted, found)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def check(cases: Sequence[Case]) -> Verdict:
    verdict = Verdict(len(cases))
    expected = [start(case, CPU) for case in cases]
    wanted = [read(c, o) if o.error is None else [] for c, o in zip(cases, expected, strict=True)]
    verdict.raised = sum(o.error is not None for o in expected)

    def compare(mode: str, run: int, index: int, outcome: Outcome) -> None:
        case = cases[index]
        if (words := differs(case, expected[index], wanted[index], outcome)) is not None:
            verdict.failures.append(Failure(mode, case.part, case.label, run, words))

    def each(mode: str, run: int) -> None:
        for index, case in enumerate(cases):
            compare(mode, run, index, start(case, NEURON))

    with adaptive_eager.using_mode("eager"):
        each("eager", 1)
    with adaptive_eager.using_mode("adaptive"):
        each("adaptive", 1)
        before = adaptive_eager.stats()
        for run in range(2, ADAPTIVE_RUNS):
            each("adaptive", run)
        for index, outcome in enumerate([start(case, NEURON) for case in cases]):
            compare("adaptive", ADAPTIVE_RUNS, index, outcome)
        after = adaptive_eager.stats()
    verdict.recorded = after.ops_recorded - before.ops_recorded
    verdict.direct = _direct(after) - _direct(before)
    return verdict


def _direct(stats: adaptive_eager.Stats) -> int:
    """Ops that ran by themselves, without the copies that bring inputs here and results back."""
    return stats.ops_direct - stats.direct_reasons.get("host_copy", 0)


def seed(value: int) -> None:
    """torch.manual_seed, without the stack traces that it keeps for devices that are not there."""
    torch.default_generator.manual_seed(value)
    torch.neuron.manual_seed_all(value)


def cotangents(outputs: Sequence[torch.Tensor], device: str) -> list[torch.Tensor]:
    """Fixed pseudo-random gradients, the same on every device."""
    made = []
    for index, output in enumerate(outputs):
        generator = torch.Generator().manual_seed(41 + index)
        made.append(torch.randn(output.shape, dtype=output.dtype, generator=generator).to(device))
    return made


def gradients(results: Any, inputs: Any, device: str) -> Any:
    """The gradients of every differentiable input, or () where nothing is differentiable."""
    outputs = [t for t in trees.tensors(results) if t.requires_grad]
    leaves = [t for t in trees.tensors(inputs) if t.requires_grad]
    if not outputs or not leaves:
        return ()
    return torch.autograd.grad(outputs, leaves, cotangents(outputs, device), allow_unused=True)
