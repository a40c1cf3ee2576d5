"""Sides measured in turn, summed up as ratios, after their answers were compared bit for bit.

What becomes of a step's result decides what has to be computed, so it is said each time:

kept     every result of a round stays alive (the last 64 where a round has more), so each is really computed
last     a result stays alive until the next one exists: of a region's results all but the last may be skipped
dropped  nobody keeps a result: what only leads to results may be skipped, a plain timing loop does this
"""

import gc
import json
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from models import Make, Step

import adaptive_eager
from adaptive_eager import _native

KEPT, LAST, DROPPED = "kept", "last", "dropped"
FLAVOURS = (KEPT, LAST, DROPPED)
HELD = 64  # results of a round that stay alive
ROUND = 0.02  # seconds that a round should take on the stock CPU
MOST_STEPS = 2000  # in a round
COMPILE_SECONDS = 120.0
SETTLED_ROUNDS, MOST_WARM_ROUNDS = 4, 60


def values(result: object) -> list[torch.Tensor]:
    """What a step returned, on the CPU, copied."""
    if isinstance(result, (list, tuple)):
        return [value for part in result for value in values(part)]
    if isinstance(result, torch.Tensor):
        return [result.detach().to("cpu", copy=True)]
    return [torch.tensor(result)]


def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """The same bits; any NaN is like any other."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if not found.is_floating_point():
        return torch.equal(found, expected)
    nan = expected.isnan()
    if not torch.equal(found.isnan(), nan):
        return False
    found, expected = found.masked_fill(nan, 0), expected.masked_fill(nan, 0)
    return torch.equal(found, expected) and torch.equal(found.signbit(), expected.signbit())


def same(found: object, expected: object) -> bool:
    return all(equal(a, b) for a, b in zip(values(found), values(expected), strict=True))


def first_difference(make: Make, device: str = "neuron", steps: int = 6) -> str:
    """Empty where every step from fresh state gives the CPU's bits: read at every step, then again read at the end."""
    for when in ("read at once", "read at the end"):
        expected, found = make("cpu"), make(device)
        results: list[tuple[object, object]] = []
        for number in range(steps):
            pair = (found(), expected())
            if when == "read at once" and not same(*pair):
                return f"step {number} differs"
            results.append(pair)
        for number, pair in enumerate(results):
            if not same(*pair):
                return f"step {number}, {when}, differs"
    return ""


class Side:
    """One step function, its results, and how many steps it has made."""

    def __init__(self, step: Step, wait: Callable[[], object] = lambda: None) -> None:
        self.step, self.wait, self.steps = step, wait, 0
        self._kept: deque[object] = deque(maxlen=HELD)

    def time(self, count: int, flavour: str = KEPT) -> float:
        """Seconds per step of `count` steps, all finished. Freeing the last round's results is not part of it."""
        self._kept.clear()
        self.wait()
        self.steps += count
        step, keep = self.step, self._kept.append
        start = time.perf_counter()
        if flavour == KEPT:
            for _ in range(count):
                keep(step())
        elif flavour == LAST:
            for _ in range(count):
                last = step()  # noqa: F841 it lives until the next one exists
        else:
            for _ in range(count):
                step()
        self.wait()
        return (time.perf_counter() - start) / count


def stock(make: Make) -> Side:
    return Side(make("cpu"))


def ours(make: Make) -> Side:
    return Side(make("neuron"), torch.neuron.synchronize)  # type: ignore[attr-defined]


def steps_in_a_round(side: Side) -> int:
    side.time(2)
    return max(1, min(MOST_STEPS, int(ROUND / max(min(side.time(2) for _ in range(3)), 1e-7))))


def wait_for_compiles() -> bool:
    """Until no loop waits to be compiled; whether any did."""
    adaptive_eager.flush()
    any_pending, limit = False, time.monotonic() + COMPILE_SECONDS
    while _native.lib.ae_compile_pending():
        any_pending = True
        if time.monotonic() > limit:
            raise TimeoutError(f"loops are still being compiled after {COMPILE_SECONDS:.0f} s")
        time.sleep(0.001)
    return any_pending


def settle(side: Side, count: int, flavour: str = KEPT) -> None:
    """Runs until rounds want nothing compiled any more."""
    quiet = 0
    for _ in range(MOST_WARM_ROUNDS):
        known = len(kernels())
        side.time(count, flavour)
        quiet = 0 if wait_for_compiles() or len(kernels()) > known else quiet + 1
        if quiet >= SETTLED_ROUNDS:
            return


def kernels() -> list[dict[str, Any]]:
    """Every loop of the process: name, state, why, ns, cached."""
    found: list[dict[str, Any]] = json.loads(_native.take_text(_native.lib.ae_describe_kernels()))
    return found


def in_turn(sides: dict[str, Side], count: int, rounds: int, flavour: str = KEPT) -> dict[str, list[float]]:
    """Seconds per step. The n-th entries were measured beside each other; every other round goes the other way."""
    gc.collect()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for _ in range(rounds):
        for name in order:
            seconds[name].append(sides[name].time(count, flavour))
        order.reverse()
    return seconds


def spread(numbers: list[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    if len(numbers) < 2:
        return (numbers[0],) * 3
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, middle, high


def versus(base: list[float], own: list[float]) -> dict[str, float]:
    """x: base's time over own's, the median of the rounds' ratios, with its quartiles; more is better."""
    low, x, high = spread([b / o for b, o in zip(base, own, strict=True)])
    us, base_us = (statistics.median(seconds) * 1e6 for seconds in (own, base))
    return {"x": x, "low": low, "high": high, "us": us, "base_us": base_us}
