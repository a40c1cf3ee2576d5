"""One program of models.py in a process of its own: stock CPU eager beside adaptive eager and, with --compile, beside
torch.compile too. Prints one JSON object.

The limit is the same program with execution left out: launches run nothing, so what is left is Python and recording.
"""

import argparse
import json
import os
import statistics
import time
from typing import Any

import measure
import models
import torch
from measure import FLAVOURS, Side
from models import Make

import adaptive_eager
from adaptive_eager import _native

COMPILED_STEPS = 4  # compared with stock's; what they take beyond the final speed is compile time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=models.NAMES)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch's operators")
    parser.add_argument("--one-core", action="store_true", help="pin the process: nothing runs beside Python")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="torch.compile (inductor) too")
    args = parser.parse_args()
    if args.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(args.threads)
    adaptive_eager.set_mode("adaptive")
    compare = compare_compiled if args.compile else compare_ours
    print(json.dumps({"name": args.name} | compare(models.NAMES[args.name], args.rounds)))


def compare_ours(make: Make, rounds: int) -> dict[str, Any]:
    make("cpu")()  # the first op that MKL shares among threads has, now and then, bits of its own (docs/numerics.md)
    problem = measure.first_difference(make)
    cpu, own = measure.stock(make), measure.ours(make)
    count = measure.steps_in_a_round(cpu)
    row: dict[str, Any] = {"steps_in_a_round": count}
    for flavour in FLAVOURS:
        measure.settle(own, count, flavour)
        cpu.time(count, flavour)
        launches = adaptive_eager.stats().launches
        own.time(count, flavour)
        launches = adaptive_eager.stats().launches - launches
        seconds = measure.in_turn({"cpu": cpu, "own": own}, count, rounds, flavour)
        row[flavour] = measure.versus(seconds["cpu"], seconds["own"]) | {"launches": launches / count}
    row["kernels"] = measure.kernels()
    problem = problem or measure.first_difference(make) or late_difference(cpu, own)
    return row | {"bits": not problem, "problem": problem, "limit": limit(make, cpu, count, rounds)}


def late_difference(cpu: Side, own: Side) -> str:
    """Both have made thousands of steps from the same state: after equally many they must agree still."""
    behind, ahead = sorted((cpu, own), key=lambda side: side.steps)
    while behind.steps < ahead.steps:
        behind.time(min(500, ahead.steps - behind.steps))
    return "" if measure.same(own.step(), cpu.step()) else f"step {cpu.steps} differs"


def limit(make: Make, cpu: Side, count: int, rounds: int) -> dict[str, Any]:
    """Comes last: everything is garbage from here on."""
    if not hasattr(_native.lib, "ae_bench_execution"):
        return {"why": "this library cannot leave execution out"}
    own = measure.ours(make)
    measure.settle(own, count)
    _native.lib.ae_bench_execution(0)
    try:
        try:
            own.time(count)
        except IndexError:
            valid_indices()
            own.time(count)
        seconds = measure.in_turn({"cpu": cpu, "own": own}, count, rounds)
    except Exception as error:  # a program may fail on garbage
        return {"why": f"{type(error).__name__}: {error}".splitlines()[0]}
    finally:
        _native.lib.ae_bench_execution(1)
    return measure.versus(seconds["cpu"], seconds["own"])


def valid_indices() -> None:
    """Embeddings of the device look up zeros from now on, after the flush that indices of its own ask for."""
    embedding, zeros = torch.nn.functional.embedding, dict[torch.Size, torch.Tensor]()

    def look_up(ids: torch.Tensor, *args: Any) -> torch.Tensor:
        if ids.device.type == "neuron":
            adaptive_eager.flush()
            if ids.shape not in zeros:
                zeros[ids.shape] = torch.zeros(ids.shape, dtype=ids.dtype).to("neuron")
            ids = zeros[ids.shape]
        return embedding(ids, *args)

    torch.nn.functional.embedding = look_up


def compare_compiled(make: Make, rounds: int) -> dict[str, Any]:
    cpu, own, compiled = measure.stock(make), measure.ours(make), Side(torch.compile(make("cpu")))
    count = measure.steps_in_a_round(measure.stock(make))
    bits, first = True, []
    for _ in range(COMPILED_STEPS):
        start = time.perf_counter()
        result = compiled.step()
        first.append(time.perf_counter() - start)
        bits = measure.same(result, cpu.step()) and bits
    measure.settle(own, count)
    for _ in range(3):
        compiled.time(count)
    seconds = measure.in_turn({"cpu": cpu, "own": own, "compiled": compiled}, count, rounds)
    return {
        "compile_s": sum(first) - len(first) * statistics.median(seconds["compiled"]),
        "bits": bits,
        "compiled": measure.versus(seconds["cpu"], seconds["compiled"]),
        "own": measure.versus(seconds["cpu"], seconds["own"]),
        "own_to_compiled": measure.versus(seconds["compiled"], seconds["own"]),
    }


if __name__ == "__main__":
    main()
