"""What one small op costs from Python, by kind, and where that goes."""

import statistics
import time
from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import adaptive_eager
from adaptive_eager import _native

Op = Callable[[torch.Tensor, torch.Tensor], object]
RECORD_BUDGET = 250  # ns
REGION = 64  # ops


def backward(ops: int) -> Op:
    """A graph of so many ops, forward and back. Autograd hands a device's backward pass to a thread of its own."""

    def op(a: torch.Tensor, b: torch.Tensor) -> object:
        x = leaf = a.detach().requires_grad_()
        for _ in range(ops - 1):
            x = x * b
        x.sum().backward()
        return leaf.grad

    return op


OPS: dict[str, Op] = {
    "pointwise": lambda a, b: a + b,
    "pointwise, scalar": lambda a, b: a * 1.5,
    "unary": lambda a, b: a.exp(),
    "in-place": lambda a, b: a.mul_(1.0),
    "out": lambda a, b: torch.add(b, b, out=a),
    "reduction": lambda a, b: a.sum(),
    "matmul": lambda a, b: a.view(4, 4) @ b.view(4, 4),
    "view": lambda a, b: a.view(4, 4),
    "foreach of 8": lambda a, b: torch._foreach_add([a] * 8, [b] * 8),
    "backward of 2": backward(2),
    "backward of 32": backward(32),
}


def on_16_elements(op: Op) -> Callable[[str], Callable[[], object]]:
    def make(device: str) -> Callable[[], object]:
        a, b = (torch.linspace(low, 1, 16).to(device) for low in (0.5, -1.0))
        return lambda: op(a, b)

    return make


@pytest.mark.parametrize("name", OPS)
def test_op(name: str, versus: Callable[..., object]) -> None:
    versus(on_16_elements(OPS[name]))


def test_pointwise_with_gradient(versus: Callable[..., object]) -> None:
    def make(device: str) -> Callable[[], object]:
        a, b = (torch.linspace(low, 1, 16).to(device).requires_grad_() for low in (0.5, -1.0))
        return lambda: a + b

    versus(make)


def test_record_and_key(benchmark: BenchmarkFixture, note: Callable[[str], None]) -> None:
    """Recording alone, output creation excluded."""
    count = 100_000
    _native.lib.ae_bench_record(count)
    found: list[float] = []
    benchmark.pedantic(lambda: found.append(_native.lib.ae_bench_record(count)), rounds=21)
    ns = statistics.median(found)
    benchmark.extra_info["ns_per_op"] = round(ns, 1)
    note(f"record + key: {ns:.0f} ns per op, at most {RECORD_BUDGET}")
    assert 0 < ns <= RECORD_BUDGET


def test_region_launch(benchmark: BenchmarkFixture, note: Callable[[str], None]) -> None:
    """The launch of a recorded region of 64 additions, against the same additions on the CPU."""
    a, b = torch.ones(16, device="neuron"), torch.ones(16)
    cpu: list[float] = []
    kept: list[list[torch.Tensor]] = []

    def setup() -> None:
        kept.clear()
        start = time.perf_counter()
        kept.append([b + 1.5 for _ in range(REGION)])
        cpu.append(time.perf_counter() - start)
        kept.append([a + 1.5 for _ in range(REGION)])

    before = adaptive_eager.config.min_region_ops
    with adaptive_eager.using_mode("adaptive"):
        adaptive_eager.config.min_region_ops = 2 * REGION  # nothing is launched before the flush
        try:
            for _ in range(5):
                setup()
                adaptive_eager.flush()
            cpu.clear()
            benchmark.pedantic(adaptive_eager.flush, setup=setup, rounds=200)
            assert torch.equal(kept[1][-1].cpu(), kept[0][-1])
        finally:
            adaptive_eager.config.min_region_ops = before
    us = statistics.median(benchmark.stats.stats.data) * 1e6
    eager = statistics.median(cpu) * 1e6
    each = f"{us / REGION * 1e3:.0f} ns per op"
    note(f"region launch: {us:.1f} us for {REGION} ops, {each}; the same on stock CPU from Python {eager:.1f} us")
