"""`adaptive-eager doctor`: what is installed, how it is set, and whether it works here."""

import argparse
import os
import platform
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import adaptive_eager
from adaptive_eager import _env, _native
from adaptive_eager.config import policies

# What decides which of ATen's kernels run, as /proc/cpuinfo names it.
VECTOR_FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


def add(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="check the installation and show its settings", allow_abbrev=False)
    parser.set_defaults(execute=execute)


def cpu() -> tuple[str, list[str]]:
    """The processor's name and those of its vector features that matter here."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = fields.get("flags", fields.get("Features", "")).split()
    name = fields.get("model name", platform.processor() or platform.machine())
    return name, [feature for feature in VECTOR_FEATURES if feature in flags]


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.show_header = any(columns)
    for column in table.columns:
        column.overflow = "fold"
    return table


def _facts() -> Table:
    import torch

    name, features = cpu()
    table = _table("Versions and machine", "", "")
    table.add_row("adaptive_eager", adaptive_eager.__version__)
    table.add_row("torch", torch.__version__)
    table.add_row("python", platform.python_version())
    table.add_row("system", platform.platform())
    table.add_row("cpu", name)
    table.add_row("vector features", " ".join(features) or "none known")
    table.add_row("torch's kernels", torch.backends.cpu.get_cpu_capability())
    table.add_row("threads", str(torch.get_num_threads()))
    return table


def _build() -> Table:
    lib = _native.lib
    table = _table("Native library", "", "")
    table.add_row("file", str(_native.library_path()))
    table.add_row("built for torch", _native.text(lib.ae_built_torch_version()))
    table.add_row("ABI", str(lib.ae_abi_version()))
    table.add_row("mode", adaptive_eager.mode())
    return table


def _environment() -> Table:
    table = _table("Environment", "variable", "value", "good values", "default")
    for variable in _env.TABLE:
        value = os.environ.get(variable.name, "not set")
        table.add_row(variable.name, value, variable.values, variable.default or "none")
    return table


def _policy() -> Table:
    table = _table("Policy constants", "name", "value", "default", "why")
    for policy in policies().values():
        table.add_row(policy.name, str(adaptive_eager.config[policy.name]), str(policy.initial), policy.why)
    return table


def _self_test(console: Console) -> bool:
    from . import selftest

    console.print("Self-test: a tiny model trained on the CPU and on the device", style="bold")
    expected = selftest.train("cpu")
    good = True
    for mode in _env.MODES:
        problem = selftest.check(mode, expected)
        console.print(f"  {mode:8} {problem or 'same bits as the CPU'}", markup=False, highlight=False)
        good = good and not problem
    return good


def execute(args: argparse.Namespace) -> int:
    console = Console()
    console.print(_facts(), "")
    console.print(_build(), "")  # says why, and ends here, where the device did not load
    console.print(_environment(), "")
    console.print(_policy(), "")
    return 0 if _self_test(console) else 1
