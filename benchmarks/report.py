"""Measures all of it and writes docs/benchmarks.md: `python benchmarks/report.py`, or some PARTs of it by name.

Each program is measured in a process of its own, with empty caches. What was measured is kept in .benchmarks/report,
one file a part, so that parts and programs can be measured one by one; the page shows what there is. PART is one of

models-1     every program at one thread
models-2     ... at two threads
models-core  ... at one thread and pinned to one core, so that nothing runs beside Python
start        the first seconds of every program, with an empty and a filled disk cache
bandwidth    a chain over 16M elements beside a plain copy of as many bytes
compile      beside torch.compile, which needs g++
peers        MLX and JAX, each in an environment of its own
launch       small ops
soak         long runs that must change nothing
page         writes the page and measures nothing
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import models
import page
import soak

HERE = Path(__file__).parent
RESULTS = HERE.parent / ".benchmarks" / "report"
OURS = ("NEURON_", "ADAPTIVE_EAGER_", "TORCHINDUCTOR_")

Args = argparse.Namespace
Found = list[dict[str, Any]]


def run(script: str, *arguments: object, limit: float | None = None, **variables: str) -> dict[str, Any]:
    """What the script printed, from a process with empty caches unless `variables` names others."""
    words = [script, *map(str, arguments)]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        environ |= {"ADAPTIVE_EAGER_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder} | variables
        command = [sys.executable, str(HERE / script), *words[1:]]
        try:
            done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            found: dict[str, Any] = {"failed": f"more than {limit:.0f} s"}
        else:
            wrong = {"failed": f"status {done.returncode}"}
            found = wrong if done.returncode else json.loads(done.stdout.splitlines()[-1])
    print(f"{time.monotonic() - start:6.1f} s  {' '.join(words)}  {found.get('failed', '')}", flush=True)
    return found


def workloads(args: Args, *options: str, limit: float | None = None) -> Found:
    rounds = ("--rounds", args.rounds)
    return [{"name": name} | run("workload.py", name, *options, *rounds, limit=limit) for name in args.programs]


def start(args: Args) -> Found:
    rows = []
    for name in args.programs:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (run("start.py", name, ADAPTIVE_EAGER_CACHE_DIR=cache) for _ in range(2))
        rows.append({"name": name, "cold": cold, "warm": warm})
    return rows


def peers(args: Args) -> Found:
    names = [name for name in args.programs if name in models.PEERS]
    common = ("--rounds", args.rounds, "--peers", *args.peers)
    return [{"name": name} | run("peers/run.py", name, *common) for name in names]


def launch(args: Args) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        command = [sys.executable, "-m", "pytest", str(HERE / "test_launch.py"), "-q", "--benchmark-only"]
        subprocess.run([*command, "--results", str(file)], check=True)
        found: dict[str, Any] = json.loads(file.read_text())
    return found


def long_runs(args: Args) -> list[str]:
    script = [sys.executable, str(HERE / "soak.py")]
    runs = (subprocess.run([*script, name], stdout=subprocess.PIPE, text=True) for name in soak.CHECKS)
    return [" ".join(done.stdout.split()) for done in runs]


PARTS: dict[str, Callable[[Args], Any]] = {
    "models-1": lambda args: workloads(args, "--threads", "1"),
    "models-2": lambda args: workloads(args, "--threads", "2"),
    "models-core": lambda args: workloads(args, "--threads", "1", "--one-core"),
    "start": start,
    "bandwidth": lambda args: [run("bandwidth.py", "--threads", threads) for threads in (1, 2)],
    "compile": lambda args: workloads(args, "--compile", limit=args.compile_limit),
    "peers": peers,
    "launch": launch,
    "soak": long_runs,
}


def load() -> dict[str, Any]:
    return {part: json.loads(file.read_text()) for part in PARTS if (file := RESULTS / f"{part}.json").exists()}


def keep(part: str, found: Any) -> None:
    """With rows of programs that were measured before and not now."""
    if (before := load().get(part)) and isinstance(found, list) and all("name" in row for row in found):
        rows = {row["name"]: row for row in (*before["found"], *found)}
        found = [rows[name] for name in models.NAMES if name in rows]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{part}.json").write_text(json.dumps({"machine": machine.describe(), "found": found}, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="all of them if none is named")
    parser.add_argument("--programs", nargs="+", default=list(models.NAMES), choices=models.NAMES, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile-limit", type=float, default=1200, help="seconds for a program with torch.compile")
    parser.add_argument("--peers", nargs="+", default=["mlx", "jax"], help="of mlx, jax and xla")
    args = parser.parse_args()
    if unknown := [part for part in args.parts if part not in (*PARTS, "page")]:
        parser.error(f"no part is named {unknown[0]}, there are {', '.join(PARTS)} and page")
    for part in args.parts or PARTS:
        if part != "page":
            keep(part, PARTS[part](args))
    page.write(load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
