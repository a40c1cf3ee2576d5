"""The long runs of soak.py, each once and in a process of its own: memory is counted from its start."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import soak
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.parametrize("name", soak.CHECKS)
def test_soak(name: str, benchmark: BenchmarkFixture, note: Callable[[str], None]) -> None:
    command = [sys.executable, str(Path(soak.__file__)), name]
    done = benchmark.pedantic(subprocess.run, (command,), {"capture_output": True, "text": True}, rounds=1)
    note(f"soak, {' '.join(done.stdout.split())}")
    assert done.returncode == 0, done.stdout + done.stderr
