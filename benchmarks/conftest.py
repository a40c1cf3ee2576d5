"""Benchmarks: stock CPU, per-op and batched, measured in turn, after their answers were compared."""

import datetime
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import adaptive_eager

CPU, EAGER, ADAPTIVE = "cpu", "eager", "adaptive"
ROUND = 0.02  # seconds that a round should take on the CPU
ROUNDS = 15

Step = Callable[[], object]
Make = Callable[[str], Step]  # make(device) gives a step from fresh state


@dataclass
class Row:
    name: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: {CPU: [], EAGER: [], ADAPTIVE: []})  # per step
    launches: dict[str, float] = field(default_factory=dict)  # per step

    def ratio(self, mode: str) -> float:
        """Stock CPU's time over ours: the median of what was measured side by side."""
        return statistics.median(cpu / own for cpu, own in zip(self.seconds[CPU], self.seconds[mode], strict=True))

    def microseconds(self, mode: str) -> float:
        return statistics.median(self.seconds[mode]) * 1e6


rows: list[Row] = []
notes: list[str] = []


def values(result: object) -> list[torch.Tensor]:
    """What a step returned, on the CPU, copied."""
    if isinstance(result, (list, tuple)):
        return [value for part in result for value in values(part)]
    if isinstance(result, torch.Tensor):
        return [result.detach().to("cpu", copy=True)]
    return [torch.tensor(result)]


def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.dtype == expected.dtype and torch.equal(found.nan_to_num(), expected.nan_to_num())


def check(make: Make, mode: str, steps: int = 5) -> None:
    """Every step from fresh state gives the CPU's bits."""
    with adaptive_eager.using_mode(mode):
        expected, found = make("cpu"), make("neuron")
        for step in range(steps):
            torch.manual_seed(step)
            pairs = zip(values(found()), values(expected()), strict=True)
            assert all(equal(a, b) for a, b in pairs), f"{mode}: step {step} differs from the CPU's"


class Side:
    def __init__(self, mode: str, make: Make) -> None:
        self.mode, self.step = mode, make("cpu" if mode == CPU else "neuron")
        self.kept: list[object] = []  # results stay alive, so that each is really computed

    def prepare(self) -> None:
        self.kept.clear()
        if self.mode != CPU and adaptive_eager.mode() != self.mode:
            adaptive_eager.set_mode(self.mode)

    def run(self, count: int) -> None:
        step, keep = self.step, self.kept.append
        for _ in range(count):
            keep(step())
        if self.mode != CPU:
            adaptive_eager.flush()

    def time(self, count: int) -> float:
        self.prepare()
        start = time.perf_counter()
        self.run(count)
        return (time.perf_counter() - start) / count


def steps_in(side: Side) -> int:
    """How many steps fill a round."""
    side.time(1)
    return max(1, min(1000, int(ROUND / max(side.time(1), 1e-7))))


@pytest.fixture
def versus(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> Iterator[Callable[..., Row]]:
    """versus(make): the benchmark's own figure is the adaptive mode's; the others are measured between its rounds."""
    before = adaptive_eager.mode()

    def measure(make: Make, rounds: int = ROUNDS, warm: int = 4) -> Row:
        for mode in (EAGER, ADAPTIVE):
            check(make, mode)
        cpu, eager, adaptive = (Side(mode, make) for mode in (CPU, EAGER, ADAPTIVE))
        count = steps_in(cpu)
        for side in (cpu, eager, adaptive):
            for _ in range(warm):
                side.time(count)
        row = Row(request.node.name.removeprefix("test_").replace("[", ": ").rstrip("]").replace("_", " "))
        for side in (eager, adaptive):
            launches = adaptive_eager.stats().launches
            side.time(count)
            row.launches[side.mode] = (adaptive_eager.stats().launches - launches) / count

        def setup() -> None:
            row.seconds[CPU].append(cpu.time(count))
            row.seconds[EAGER].append(eager.time(count))
            adaptive.prepare()

        benchmark.pedantic(adaptive.run, (count,), setup=setup, rounds=rounds)
        row.seconds[ADAPTIVE] = [seconds / count for seconds in benchmark.stats.stats.data]
        benchmark.extra_info |= {
            "steps_per_round": count,
            "x_stock_cpu": round(row.ratio(ADAPTIVE), 3),
            "x_stock_cpu_eager": round(row.ratio(EAGER), 3),
            "us_stock_cpu": round(row.microseconds(CPU), 3),
        }
        rows.append(row)
        return row

    yield measure
    adaptive_eager.set_mode(before)


@pytest.fixture
def note() -> Callable[[str], None]:
    """note("..."): a line under the summary."""
    return notes.append


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--markdown", type=Path, metavar="FILE", help="write what was measured as a page")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if rows:
        terminalreporter.section("us per step; x is stock CPU / neuron, measured in turn, more is better")
        table = [HEAD, *map(cells, rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            padded = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
            terminalreporter.write_line("  ".join((line[0].ljust(widths[0]), *padded)))
        terminalreporter.write_line(overall())
    for line in notes:
        terminalreporter.write_line(line)
    if rows and (path := config.getoption("--markdown")):
        path.write_text(page())


HEAD = ("", "stock CPU", "eager", "x", "adaptive", "x", "launches per step")


def cells(row: Row) -> tuple[str, ...]:
    us = {mode: f"{row.microseconds(mode):,.2f}" for mode in row.seconds}
    x = {mode: f"{row.ratio(mode):.2f}" for mode in (EAGER, ADAPTIVE)}
    launches = f"{row.launches[EAGER]:.4g} -> {row.launches[ADAPTIVE]:.2g}"
    return row.name, us[CPU], us[EAGER], x[EAGER], us[ADAPTIVE], x[ADAPTIVE], launches


def overall() -> str:
    ratios = [row.ratio(ADAPTIVE) for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return f"adaptive: geometric mean {mean:.2f}, least {min(ratios):.2f}"


def machine() -> str:
    """CPU, cores, threads, versions and date, in one line."""
    model = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"{model}, {os.cpu_count()} cores, {capability}, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"Python {platform.python_version()}, adaptive-eager {adaptive_eager.__version__}; {datetime.date.today()}"
    )


def page() -> str:
    lines = [" | ".join(line) for line in (HEAD, ["---", *["---:"] * (len(HEAD) - 1)], *map(cells, rows))]
    return "\n".join(
        (
            "# Benchmarks",
            "",
            "Written by `pytest benchmarks --benchmark-only --markdown docs/benchmarks.md`; do not edit.",
            "",
            machine() + ".",
            "",
            "Microseconds per step, medians. x is stock CPU's time over the device's: the median of the ratios of",
            "rounds that were measured in turn in one process, so more is better and 1 is as fast. Each program's",
            "results were compared with the CPU's bit for bit in both modes before it was timed. Ops are on 16",
            "elements, chains are of eight pointwise ops. Results stay alive until the end of a round, so that each is",
            "really computed.",
            "",
            *(f"| {line} |" for line in lines),
            "",
            overall() + ".",
            "",
            *(f"- {line}" for line in notes),
            "",
        )
    )
