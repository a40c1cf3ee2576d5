"""What tests of fused loops share: loops from the first launch on, nothing pending, and what became of them."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from conftest import same_bits

import adaptive_eager
from adaptive_eager import _native, config

# Regions are fused at their first launch, end where the test says so, and never go back to single ops.
FORCED = {
    "fuse": 1,
    "fuse_after": 0,
    "verify_plans": 1,
    "profit_launches": 1000000,
    "max_kernels": 1048576,
    "max_nodes": 1048576,
    "min_region_ops": 65536,
}


@contextmanager
def forced(compare: int = 0, **constants: int) -> Iterator[None]:
    """Adaptive mode with everything fused that can be; `compare`: whether a loop's first results are compared."""
    before = config.as_dict()
    wanted = FORCED | {"compare_fused": compare} | constants
    with adaptive_eager.using_mode("adaptive"):
        for name, value in wanted.items():
            config[name] = value
        try:
            yield
        finally:
            adaptive_eager.flush()
            for name in wanted:
                config[name] = before[name]


def settle() -> None:
    """What is recorded has run, and what it wanted compiled is compiled."""
    adaptive_eager.flush()
    wait()


def wait() -> None:
    limit = time.monotonic() + 120
    while _native.lib.ae_compile_pending():
        assert time.monotonic() < limit, "a loop is being compiled for two minutes"
        time.sleep(0.0005)


_forgotten = itertools.count(1)


def forget() -> None:
    """Regions that were launched before are planned again."""
    kept, config.max_fragments = config.max_fragments, 1
    x = torch.zeros(next(_forgotten), device="neuron")
    for _ in range(3):  # a region that is new evicts the others
        x.add(1).add(2).tolist()
    config.max_fragments = kept


def kernels() -> list[dict[str, Any]]:
    """Every loop of the process, in the order in which they were wanted."""
    found: list[dict[str, Any]] = json.loads(_native.take_text(_native.lib.ae_describe_kernels()))
    return found


@contextmanager
def no_refusals() -> Iterator[None]:
    """Every loop that is wanted meanwhile compiles and gives the results of the kernels that it replaces."""
    before = {index for index, kernel in enumerate(kernels()) if kernel["state"] == "failed"}
    yield
    refused = [k for i, k in enumerate(kernels()) if k["state"] == "failed" and i not in before]
    assert not refused, "\n".join(f"{k['name']}: {k['why']}" for k in refused)


def regions() -> dict[int, dict[str, Any]]:
    return {r["id"]: r for r in json.loads(_native.take_text(_native.lib.ae_explain()))["regions"]}


@contextmanager
def launched() -> Iterator[list[dict[str, Any]]]:
    """Afterwards: the regions that were launched meanwhile."""
    before, found = regions(), list[dict[str, Any]]()
    yield found
    adaptive_eager.flush()
    for number, region in regions().items():
        if number not in before or region["launches"] > before[number]["launches"]:
            found.append(region)


def units(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """(name, loops) of what was run, loops > 0 where it was fused."""
    return [(unit["name"].removeprefix("aten::"), unit["loops"]) for region in found for unit in region["units"]]


def loops(found: list[dict[str, Any]]) -> list[str]:
    return [name for name, count in units(found) for _ in range(count)]


Program = Callable[..., Any]


def check(program: Program, inputs: Callable[[], list[torch.Tensor]], rounds: int = 5) -> list[dict[str, Any]]:
    """program(*inputs) gives the CPU's bits and leaves its inputs like the CPU, from learning to fused. Returns the
    last round's regions."""
    found: list[dict[str, Any]] = []
    with no_refusals():
        for number in range(rounds):
            torch.manual_seed(number)
            on_cpu = inputs()
            on_device = [t.to("neuron") for t in on_cpu]
            torch.manual_seed(100 + number)
            expected = program(*on_cpu)
            adaptive_eager.flush()
            torch.manual_seed(100 + number)
            with launched() as found:
                results = program(*on_device)
            compare(results, expected, f"round {number}, result")
            compare(on_device, on_cpu, f"round {number}, input")
            settle()
    return found


def compare(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, torch.Tensor):
        problem = same_bits(found, expected)
        assert not problem, f"{where}: {problem}"
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for index, (a, b) in enumerate(zip(found, expected, strict=True)):
            compare(a, b, f"{where} {index}")
    else:
        assert found == expected or found != found, f"{where}: {found}, expected {expected}"
