"""Long runs that must change nothing: `python benchmarks/soak.py [NAME ...]`, exit status 1 if one fails.

memory   a million iterations of a small loop: resident memory grows by less than 1% after warm-up
shapes   ten thousand different shapes: caches stay within their bounds
loop     ten thousand iterations of 37 ops without a read: over 99% of launches are of known regions
numbers  a new learning rate each step and a new Python float each call: nothing is compiled or cached
"""

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

import adaptive_eager
from adaptive_eager import _native, config, flush, reset_stats, stats

Check = Callable[[], tuple[bool, str]]


def resident() -> int:
    """Bytes of memory in use, less what the C library merely holds on to."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def small_loop(x: torch.Tensor, first: int, count: int) -> torch.Tensor:
    for i in range(first, first + count):
        x = (x * 0.5 + i % 7).clamp(max=4)
        if i % 100 == 0:
            x.sum().item()
    return x


def memory(iterations: int = 1_000_000) -> tuple[bool, str]:
    x = torch.ones(64, device="neuron")
    warm = iterations // 10
    x = small_loop(x, 0, warm)
    flush()
    before = resident()
    x = small_loop(x, warm, iterations - warm)
    flush()
    growth = 100 * (resident() / before - 1)
    expected = torch.ones(64)
    for i in range(iterations - 100, iterations):  # the loop forgets what lies further back
        expected = (expected * 0.5 + i % 7).clamp(max=4)
    same = torch.equal(x.cpu(), expected)
    return same and growth < 1, f"{iterations:,} iterations, {before >> 20} MiB, growth {growth:+.2f}%, bound 1%"


def shapes(count: int = 10_000) -> tuple[bool, str]:
    most = {"fragments": 0}
    before = resident()
    for n in range(1, count + 1):
        x = torch.full((n,), 2.0, device="neuron")
        for _ in range(2):
            wrong = (x * 3 + 1).amax().item() != 7
            if wrong:
                return False, f"the answer for shape {n} is wrong"
        most["fragments"] = max(most["fragments"], stats().fragments_cached)
    found = stats()
    grown = (resident() - before) >> 20
    fine = most["fragments"] <= config.max_fragments and found.fragment_evictions > 0
    return fine, (
        f"{count:,} shapes, at most {most['fragments']:,} fragments cached, bound {config.max_fragments:,}, "
        f"{found.fragment_evictions:,} evicted, {grown} MiB more"
    )


def loop(iterations: int = 10_000) -> tuple[bool, str]:
    def body(x: torch.Tensor) -> torch.Tensor:
        for i in range(36):
            x = x * 1.5 if i % 3 == 0 else x - 0.25 if i % 3 == 1 else x.clamp(-4, 4)
        return x.tanh()

    results = []
    for device in ("cpu", "neuron"):
        x = torch.linspace(-1, 1, 16).to(device)
        for i in range(iterations):
            x = body(x)
            if i == iterations // 100:
                reset_stats()  # warm by now
        results.append(x.cpu())
    found = stats()
    launches = found.fragment_hits + found.fragment_misses
    rate = 100 * found.fragment_hits / launches
    fine = torch.equal(*results) and rate > 99 and found.ops_recorded == 37 * (iterations - iterations // 100 - 1)
    return fine, f"{iterations:,} iterations of 37 ops in {launches:,} launches, {rate:.2f}% known, bound 99%"


def numbers(steps: int = 300) -> tuple[bool, str]:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 1)).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.linspace(-1, 1, 128, device="neuron").view(8, 16)

    def train(first: int, count: int) -> None:
        for step in range(first, first + count):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 / (1 + step)
            optimizer.zero_grad()
            loss = model(x * (1 + step * 1.000001)).square().mean() - step / 7
            loss.backward()
            optimizer.step()
            loss.item()

    done, compiled = 0, -1
    while compiled != stats().fragments_compiled:  # what the first steps want compiled comes as they go on
        compiled = stats().fragments_compiled
        train(done, 20)
        done += 20
        flush()
        while _native.lib.ae_compile_pending():
            time.sleep(0.01)
    reset_stats()
    kept = stats().fragments_cached
    train(done, steps)
    found = stats()
    new = found.fragments_cached - kept
    fine = new == found.fragment_misses == found.fragments_compiled == found.direct_reasons["first_seen"] == 0
    return fine, (
        f"{steps} steps, {new} fragments cached, {found.fragments_compiled} compiled, {found.fragment_misses} misses, "
        f"{found.direct_reasons['first_seen']} ops seen for the first time, bound 0"
    )


CHECKS: dict[str, Check] = {check.__name__: check for check in (memory, shapes, loop, numbers)}


@contextmanager
def adaptive() -> Iterator[None]:
    with adaptive_eager.using_mode("adaptive"):
        reset_stats()
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them if none is named")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in CHECKS]:
        parser.error(f"no check is named {unknown[0]}, there are {', '.join(CHECKS)}")
    failed = 0
    for name in args.names or CHECKS:
        start = time.perf_counter()
        with adaptive():
            fine, text = CHECKS[name]()
        failed += not fine
        print(f"{'ok  ' if fine else 'FAIL'} {name:8} {text} ({time.perf_counter() - start:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
