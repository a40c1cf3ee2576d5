"""Benchmarks of small ops: stock CPU, per-op and batched, measured in turn, after their answers were compared."""

import json
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import measure
import pytest
from measure import Side
from models import Make
from pytest_benchmark.fixture import BenchmarkFixture

import adaptive_eager

CPU, EAGER, ADAPTIVE = "cpu", "eager", "adaptive"
ROUNDS = 15


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

    def summary(self) -> dict[str, object]:
        return {
            "name": self.name,
            "us": {mode: self.microseconds(mode) for mode in self.seconds},
            "x": {mode: self.ratio(mode) for mode in (EAGER, ADAPTIVE)},
            "launches": self.launches,
        }


rows: list[Row] = []
notes: list[str] = []


def switch(mode: str) -> None:
    if mode != CPU and adaptive_eager.mode() != mode:
        adaptive_eager.set_mode(mode)


@pytest.fixture
def versus(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> Iterator[Callable[..., Row]]:
    """versus(make): the benchmark's own figure is the adaptive mode's; the others are measured between its rounds."""
    before = adaptive_eager.mode()

    def measured(make: Make, rounds: int = ROUNDS) -> Row:
        for mode in (EAGER, ADAPTIVE):
            switch(mode)
            problem = measure.first_difference(make)
            assert not problem, f"{mode}: {problem}"
        sides = {
            mode: Side(make("cpu" if mode == CPU else "neuron"), adaptive_eager.flush)
            for mode in (CPU, EAGER, ADAPTIVE)
        }
        count = measure.steps_in_a_round(sides[CPU])
        row = Row(request.node.name.removeprefix("test_").replace("[", ": ").rstrip("]").replace("_", " "))
        for mode in (EAGER, ADAPTIVE):
            switch(mode)
            measure.settle(sides[mode], count)
            launches = adaptive_eager.stats().launches
            sides[mode].time(count)
            row.launches[mode] = (adaptive_eager.stats().launches - launches) / count

        def others() -> None:
            for mode in (CPU, EAGER):
                switch(mode)
                row.seconds[mode].append(sides[mode].time(count))
            switch(ADAPTIVE)

        benchmark.pedantic(
            lambda: row.seconds[ADAPTIVE].append(sides[ADAPTIVE].time(count)), setup=others, rounds=rounds
        )
        benchmark.extra_info |= {"steps_per_round": count} | row.summary()
        rows.append(row)
        return row

    yield measured
    adaptive_eager.set_mode(before)


@pytest.fixture
def note() -> Callable[[str], None]:
    """note("..."): a line under the summary."""
    return notes.append


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, metavar="FILE", help="write what was measured as JSON")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if rows:
        terminalreporter.section("us per step; x is stock CPU / neuron, measured in turn, more is better")
        table = [HEAD, *map(cells, rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            padded = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
            terminalreporter.write_line("  ".join((line[0].ljust(widths[0]), *padded)))
        ratios = [row.ratio(ADAPTIVE) for row in rows]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        terminalreporter.write_line(f"adaptive: geometric mean {mean:.2f}, least {min(ratios):.2f}")
    for line in notes:
        terminalreporter.write_line(line)
    if path := config.getoption("--results"):
        path.write_text(json.dumps({"rows": [row.summary() for row in rows], "notes": notes}))


HEAD = ("", "stock CPU", "eager", "x", "adaptive", "x", "launches per step")


def cells(row: Row) -> tuple[str, ...]:
    us = {mode: f"{row.microseconds(mode):,.2f}" for mode in row.seconds}
    x = {mode: f"{row.ratio(mode):.2f}" for mode in (EAGER, ADAPTIVE)}
    launches = f"{row.launches[EAGER]:.4g} -> {row.launches[ADAPTIVE]:.2g}"
    return row.name, us[CPU], us[EAGER], x[EAGER], us[ADAPTIVE], x[ADAPTIVE], launches
