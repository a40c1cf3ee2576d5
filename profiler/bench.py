"""`adaptive-eager bench`: what one small op costs from Python, against stock CPU eager, on this machine."""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import adaptive_eager

from .errors import ToolError

if TYPE_CHECKING:
    import torch

SIZE = 16
CPU, EAGER, ADAPTIVE = "cpu", "eager", "adaptive"


def add(commands: Any) -> None:
    parser = commands.add_parser("bench", help="measure the cost of launching small ops", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a few seconds, less steady figures")
    parser.set_defaults(execute=execute)


def _foreach(a: "torch.Tensor", b: "torch.Tensor") -> "torch.Tensor":
    import torch

    return torch._foreach_add([a] * 8, [b] * 8)[0]


# Each computes one op's result from two tensors of 16 elements.
OPS: dict[str, Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]] = {
    "pointwise": lambda a, b: a + b,
    "pointwise scalar": lambda a, b: a * 1.5,
    "in-place": lambda a, b: a.mul_(1.0),
    "reduction": lambda a, b: a.sum(),
    "matmul": lambda a, b: a.view(4, 4) @ b.view(4, 4),
    "view": lambda a, b: a.view(4, 4),
    "foreach, 8 tensors": _foreach,
}


class Side:
    """One op on one device in one mode: `time(count)` is in seconds per call and includes the wait for results."""

    def __init__(self, mode: str, op: Callable[..., "torch.Tensor"], inputs: list["torch.Tensor"]) -> None:
        self.mode, self.op = mode, op
        self.inputs = [tensor.clone() if mode == CPU else tensor.to("neuron") for tensor in inputs]

    def time(self, count: int) -> float:
        op, (a, b) = self.op, self.inputs
        if self.mode != CPU:
            adaptive_eager.set_mode(self.mode)
        start = time.perf_counter()
        for _ in range(count):
            op(a, b)
        if self.mode != CPU:
            adaptive_eager.flush()
        return (time.perf_counter() - start) / count

    def answer(self) -> "torch.Tensor":
        return self.op(*self.inputs).cpu()


def measure(op: Callable[..., "torch.Tensor"], rounds: int, count: int) -> dict[str, list[float]]:
    """Seconds per call for each side, measured in turn: the n-th entries of the lists belong together."""
    import torch

    inputs = [torch.arange(1.0, SIZE + 1), torch.arange(SIZE, 0.0, -1.0)]
    sides = [Side(mode, op, inputs) for mode in (CPU, EAGER, ADAPTIVE)]
    for side in sides:
        side.time(count)
        side.time(count)
    times: dict[str, list[float]] = {side.mode: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            times[side.mode].append(side.time(count))
    expected = sides[0].answer()
    for side in sides[1:]:
        if not torch.equal(side.answer(), expected):
            raise ToolError(f"{side.mode} gives another answer than the CPU")
    return times


def ratio(times: dict[str, list[float]], mode: str) -> float:
    return statistics.median(cpu / own for cpu, own in zip(times[CPU], times[mode], strict=True))


def execute(args: argparse.Namespace) -> int:
    rounds, count = (9, 400) if args.quick else (31, 2000)
    title = f"us per call, {SIZE} elements; x is stock CPU / neuron, more is better"
    table = Table("op", title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("stock CPU", "eager", "x", "adaptive", "x"):
        table.add_column(column, justify="right")
    before = adaptive_eager.mode()
    try:
        with Console(stderr=True).status("measuring"):
            for name, op in OPS.items():
                times = measure(op, rounds, count)
                us = {mode: f"{statistics.median(own) * 1e6:.2f}" for mode, own in times.items()}
                x = {mode: f"{ratio(times, mode):.2f}" for mode in (EAGER, ADAPTIVE)}
                table.add_row(name, us[CPU], us[EAGER], x[EAGER], us[ADAPTIVE], x[ADAPTIVE])
    finally:
        adaptive_eager.set_mode(before)
    Console().print(table)
    return 0
