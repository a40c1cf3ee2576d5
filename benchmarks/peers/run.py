"""One program in other lazy and compiled frameworks, each in an environment of its own. Prints one JSON object.

Makes the environments where they are missing, and says what could not be installed. A peer's step ends when its results
are there. Stock PyTorch is timed in this process just before the peers, so that both meet the same machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(1, str(Path(__file__).parents[1]))

import measure
import models
from timing import CHECKED_STEPS

import adaptive_eager

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "build" / "peers"
PEERS = {
    "mlx": ["mlx[cpu]", "numpy"],
    "jax": ["jax[cpu]", "numpy"],
    "xla": ["torch_xla", "torch==2.9.*", "numpy"],  # some gigabytes: torch_xla needs the build of torch with CUDA
}
INSTALL_SECONDS, RUN_SECONDS = 1800, 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=models.PEERS)
    parser.add_argument("--peers", nargs="+", default=["mlx", "jax"], choices=PEERS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    adaptive_eager.set_mode("adaptive")
    missing = {peer: why for peer in args.peers if (why := environment(peer))}
    row = stock(args.program, args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "inputs.npz"
        np.savez(file, **inputs(args.program), **answers(args.program))
        row["peers"] = {
            peer: {"failed": missing[peer]} if peer in missing else run(peer, args.program, file, args.threads)
            for peer in args.peers
        }
    print(json.dumps({"threads": args.threads} | row))


def environment(peer: str) -> str:
    """Makes it if needed. Empty if it is there, else why not."""
    folder = FOLDER / peer
    if (folder / "installed").exists():
        return ""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *PEERS[peer]]
    try:
        for command in ([sys.executable, "-m", "venv", str(folder)], pip):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"installing it took more than {INSTALL_SECONDS} s"
    except subprocess.CalledProcessError as error:
        return last_line(error.stderr)
    (folder / "installed").touch()
    return ""


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason was given")


def stock(program: str, rounds: int) -> dict[str, Any]:
    make = models.NAMES[program]
    cpu, own = measure.stock(make), measure.ours(make)
    count = measure.steps_in_a_round(cpu)
    measure.settle(own, count)
    seconds = measure.in_turn({"cpu": cpu, "own": own}, count, rounds)
    return {"us": {name: statistics.median(found) * 1e6 for name, found in seconds.items()}}


def run(peer: str, program: str, file: Path, threads: int) -> dict[str, Any]:
    command = [str(FOLDER / peer / "bin" / "python"), str(HERE / f"{peer}_programs.py"), program, str(file)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "ADAPTIVE_EAGER_"))}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"):  # NPROC: XLA's pool
        environ[name] = str(threads)
    environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": f"it took more than {RUN_SECONDS} s"}
    if done.returncode:
        return {"failed": last_line(done.stderr)}
    found: dict[str, Any] = json.loads(last_line(done.stdout))
    return found


def inputs(program: str) -> dict[str, np.ndarray]:
    """The numbers that models.py makes: a peer's wrong answer would tell if they were others."""
    if program in models.CHAINS:
        generator = torch.Generator().manual_seed(0)
        return {name: torch.randn(models.CHAINS[program], generator=generator).numpy() for name in "abc"}
    if program == "rk4":
        return {"start": torch.randn(4096, generator=torch.Generator().manual_seed(0)).numpy()}
    torch.manual_seed(0)
    if program == "attn_hand":
        return {name: torch.randn(4, 4, 256, 32).numpy() for name in "qkv"}
    return {f"{kind}{i}": torch.randn(64, 64).numpy() for kind in "pg" for i in range(200)}


def answers(program: str) -> dict[str, np.ndarray]:
    step = models.NAMES[program]("cpu")
    return {
        f"answer{number}_{index}": value.numpy()
        for number in range(CHECKED_STEPS)
        for index, value in enumerate(measure.values(step()))
    }


if __name__ == "__main__":
    main()
