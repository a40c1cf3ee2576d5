"""What the peers' scripts share: inputs and stock PyTorch's answers from a file, timing, one JSON object as output.

Needs numpy alone: each peer runs in its own environment, without this project.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

ROUND, ROUNDS, MOST_STEPS = 0.02, 15, 2000
CHECKED_STEPS = 3  # the answers in the file are those after each of so many steps
TOLERANCE = 1e-4

Arrays = dict[str, np.ndarray]
Step = Callable[[], Iterable[Any]]  # makes a step, finishes it, returns arrays


def load(path: str) -> tuple[Arrays, list[list[np.ndarray]]]:
    """Inputs by name, and the results of each checked step."""
    with np.load(path) as file:
        data = dict(file)
    answers: list[list[np.ndarray]] = []
    for number in range(CHECKED_STEPS):
        names = sorted((n for n in data if n.startswith(f"answer{number}_")), key=lambda n: int(n.split("_")[1]))
        answers.append([data.pop(name) for name in names])
    return data, answers


def array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def measure(step: Step, answers: list[list[np.ndarray]]) -> dict[str, Any]:
    worst, bits, first = 0.0, True, 0.0
    for number, expected in enumerate(answers):
        start = time.perf_counter()
        found = list(step())
        first += (time.perf_counter() - start) if number == 0 else 0
        for a, b in zip(map(array, found), expected, strict=True):
            bits = bits and a.dtype == b.dtype and a.tobytes() == b.tobytes()
            worst = max(worst, float(np.max(np.abs(a - b) / (1 + np.abs(b)))))
    if not worst <= TOLERANCE:
        raise SystemExit(f"the answer is wrong by {worst:.2g}")
    start = time.perf_counter()
    step()
    count = max(1, min(MOST_STEPS, int(ROUND / (time.perf_counter() - start))))
    seconds = []
    for _ in range(ROUNDS + 3):
        start = time.perf_counter()
        for _ in range(count):
            step()
        seconds.append((time.perf_counter() - start) / count)
    us = statistics.median(seconds[3:]) * 1e6
    return {"us": us, "bits": bits, "error": worst, "first_s": first - us / 1e6}


def main(ways: dict[str, Callable[[str, Arrays], Step]], version: str) -> None:
    """SCRIPT PROGRAM FILE: the program in each way that the peer has of running it."""
    program, path = sys.argv[1:3]
    inputs, answers = load(path)
    found = {way: measure(make(program, inputs), answers) for way, make in ways.items()}
    print(json.dumps({"version": version, "script": Path(sys.argv[0]).stem, "ways": found}))
