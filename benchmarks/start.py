"""The first seconds of one program of models.py, in a process of its own. Prints one JSON object.

Stock CPU eager is brought to its final speed first. Then the program starts on the device: its first three steps, each
finished before the next; after them rounds, until loops are compiled and the speed no longer changes.
"""

import argparse
import json
import statistics
import time
from typing import Any

import measure
import models
import torch
from models import Make

import adaptive_eager

ROUND = 0.005  # seconds of stock CPU: how finely the way to the final speed is seen
FINAL_ROUNDS = 30  # the last ones
GOOD = 0.9
IN_A_ROW = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=models.NAMES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="to run at least")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    adaptive_eager.set_mode("adaptive")
    print(json.dumps({"name": args.name} | first_seconds(models.NAMES[args.name], args.seconds)))


def first_seconds(make: Make, least: float) -> dict[str, Any]:
    cpu, own = measure.stock(make), measure.ours(make)
    count = max(1, measure.steps_in_a_round(cpu) * int(ROUND * 1e6) // int(measure.ROUND * 1e6))
    base = statistics.median(cpu.time(count) for _ in range(9))
    single = statistics.median(cpu.time(1) for _ in range(9))

    began = time.perf_counter()
    steps = [own.time(1) for _ in range(3)]
    rounds: list[tuple[float, float]] = []  # seconds since the first step when it began, seconds per step
    while time.perf_counter() - began < least or len(rounds) < 2 * FINAL_ROUNDS:
        rounds.append((time.perf_counter() - began, own.time(count)))
    compiled = measure.kernels()
    measure.wait_for_compiles()
    for _ in range(FINAL_ROUNDS):
        rounds.append((time.perf_counter() - began, own.time(count)))

    final = statistics.median(seconds for _, seconds in rounds[-FINAL_ROUNDS:])
    return {
        "steps": [single / seconds for seconds in steps],
        "ready_s": next(
            (
                at
                for index, (at, _) in enumerate(rounds)
                if statistics.median(s for _, s in rounds[index : index + IN_A_ROW]) * GOOD <= final
            ),
            None,
        ),
        "final": base / final,
        "loops": len(compiled),
        "cached": sum(kernel["cached"] for kernel in compiled),
    }


if __name__ == "__main__":
    main()
