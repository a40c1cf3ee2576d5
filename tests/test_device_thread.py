"""Regions that run on the device's thread: who waits for them, and what happens to them in a fork or without memory."""

import textwrap
from collections.abc import Callable, Iterator

import pytest
import torch

import adaptive_eager
from adaptive_eager import config


@pytest.fixture(autouse=True)
def handed_over() -> Iterator[None]:
    """Every region is handed over, as soon as its time is known."""
    names = ("hand_over_ns", "min_region_ops", "max_region_ops")
    before = [getattr(config, name) for name in names]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for name, value in zip(names, (0, 4, 16), strict=True):
        setattr(config, name, value)
    with adaptive_eager.using_mode("adaptive"):
        yield
    for name, value in zip(names, before, strict=True):
        setattr(config, name, value)
    torch.set_num_threads(threads)


WEIGHT = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)) * 0.1


def work(x: torch.Tensor, weight: torch.Tensor, steps: int = 12) -> torch.Tensor:
    y = x
    for _ in range(steps):
        y = torch.relu(y @ weight) * 1.01 + x
    return y


READS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cpu": lambda y: y.cpu(),
    "item": lambda y: torch.tensor(y[3, 5].item()),
    "view": lambda y: y[1:, ::2].t().cpu(),
    "tolist": lambda y: torch.tensor(y[0].tolist()),
    "copy to host": lambda y: torch.empty(64, 64).copy_(y),
    "direct op": lambda y: torch.masked_select(y, y > 0).cpu(),
    "in place": lambda y: y.mul_(2).add_(1).cpu(),
}


@pytest.mark.parametrize("read", READS)
def test_reads_wait_for_what_is_in_flight(read: str) -> None:
    for seed in range(6):
        x = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))
        expected = READS[read](work(x, WEIGHT))
        assert torch.equal(READS[read](work(x.to("neuron"), WEIGHT.to("neuron"))), expected)


def test_host_writes_wait_for_reads_in_flight() -> None:
    x = torch.ones(64, 64, device="neuron")
    weight = WEIGHT.to("neuron")
    for value in range(6):
        x.copy_(torch.full((64, 64), float(value)))
        y = work(x, weight)
        x.copy_(torch.full((64, 64), -1.0))
        assert torch.equal(y.cpu(), work(torch.full((64, 64), float(value)), WEIGHT))


def test_computed_indices_in_flight_are_checked() -> None:
    table = torch.arange(64.0).to("neuron")
    for _ in range(6):
        scores = work(torch.ones(64, 64, device="neuron"), WEIGHT.to("neuron"))
        chosen = scores.argmax(1)
        work(scores, WEIGHT.to("neuron"))
        assert torch.equal(table[chosen].cpu(), chosen.cpu().float())
    with pytest.raises(IndexError):
        table[chosen + 64].cpu()


SCRIPT = """
import os, signal, threading
import torch
torch.set_num_threads(1)
import adaptive_eager
weight = (torch.randn(64, 64) * 0.1)
def work(x, w):
    y = x
    for _ in range(20):
        y = torch.relu(y @ w) * 1.01 + x
    return y
x = torch.randn(64, 64)
expected = work(x, weight)
def device():
    return work(x.to("neuron"), weight.to("neuron"))
for _ in range(6):
    assert torch.equal(device().cpu(), expected)
"""

FORKS = """
stop = False
def others():
    while not stop:
        device().cpu()
threads = [threading.Thread(target=others) for _ in range(2)]
for t in threads: t.start()
bad = 0
for _ in range(10):
    y = device()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        os._exit(0 if torch.equal(y.cpu(), expected) and torch.equal(device().cpu(), expected) else 3)
    bad += os.waitpid(pid, 0)[1] != 0
stop = True
for t in threads: t.join()
print("bad children", bad)
"""

MEMORY = """
torch.neuron.synchronize()
torch.neuron.empty_cache()
def large():
    y = torch.cat([device()] * 512)
    torch.neuron.empty_cache()
    return (y * 2 + 1) @ weight.to("neuron")
for _ in range(6): fine = large().cpu()
failed = 0
for extra in (1 << 18, 1 << 20, 4 << 20):
    most = torch.neuron.memory_allocated() + extra
    torch.neuron.set_per_process_memory_fraction(most / torch.neuron.mem_get_info()[1])
    try:
        assert torch.equal(large().cpu(), fine)
    except torch.OutOfMemoryError:
        failed += 1
    torch.neuron.set_per_process_memory_fraction(1.0)
    assert torch.equal(large().cpu(), fine)
print("failed", failed > 0)
"""

ENVIRONMENT = {
    "NEURON_EAGER": "adaptive",
    "ADAPTIVE_EAGER_HAND_OVER_NS": "0",
    "ADAPTIVE_EAGER_MIN_REGION_OPS": "4",
    "ADAPTIVE_EAGER_MAX_REGION_OPS": "32",
}


def test_forks_beside_recording_threads_leave_working_children(python: Callable) -> None:
    done = python("-c", textwrap.dedent(SCRIPT + FORKS), **ENVIRONMENT)
    assert done.stdout.strip() == "bad children 0", done.stderr


def test_running_out_of_memory_in_flight_harms_nothing_else(python: Callable) -> None:
    done = python("-c", textwrap.dedent(SCRIPT + MEMORY), **ENVIRONMENT)
    assert done.stdout.strip() == "failed True", done.stderr
