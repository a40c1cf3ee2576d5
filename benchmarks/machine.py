"""What the figures were measured on, and with."""

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import adaptive_eager


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _caches() -> str:
    """Of the first core: "48K L1d, 2048K L2, 32M L3"."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}{'d' if kind == 'Data' else ''}"] = size
    return ", ".join(f"{size} {name}" for name, size in found.items()) or "not known"


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _compiler() -> str:
    try:
        done = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return done.stdout.strip()


def describe() -> dict[str, str]:
    """In the order in which a page shows it."""
    return {
        "date": str(datetime.date.today()),
        "CPU": f"{_cpu_model()}, {torch.backends.cpu.get_cpu_capability()}",
        "cores": str(os.cpu_count()),
        "caches": _caches(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "llvmlite": _package("llvmlite"),
        "g++ (torch.compile)": _compiler(),
        "adaptive-eager": adaptive_eager.__version__,
    }
