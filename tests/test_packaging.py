"""What is installed, and what it promises to the package index."""

import subprocess
import sys
from importlib.metadata import distribution, entry_points
from pathlib import Path

from packaging.requirements import Requirement

import adaptive_eager
from adaptive_eager import _native

ROOT = Path(__file__).parents[1]


def test_torch_autoloads_the_device_by_its_entry_point() -> None:
    (point,) = entry_points(group="torch.backends", name="neuron")
    assert point.load() is adaptive_eager._autoload


def test_console_script_is_the_command_line() -> None:
    from adaptive_eager.profiler.cli import main

    (point,) = entry_points(group="console_scripts", name="adaptive-eager")
    assert point.load() is main


def test_torch_is_pinned_to_the_minor_release_that_the_library_was_built_for() -> None:
    requirements = [Requirement(text) for text in distribution("adaptive-eager").requires or []]
    (torch,) = [r for r in requirements if r.name == "torch" and r.marker is None]
    built = _native.text(_native.lib.ae_built_torch_version())
    assert torch.specifier.contains(built)
    assert not torch.specifier.contains("2.12.1") and not torch.specifier.contains("2.14.0")


def test_native_library_links_no_python() -> None:
    output = subprocess.run(["ldd", _native.library_path()], capture_output=True, text=True, check=True).stdout
    assert "libpython" not in output and "libtorch_python" not in output
    assert "libtorch_cpu" in output


def test_header_and_type_marker_are_installed() -> None:
    assert _native.find("adaptive_eager.h").is_file()
    assert _native.find("py.typed").is_file()


def test_version_is_the_distributions() -> None:
    assert adaptive_eager.__version__ == distribution("adaptive-eager").version


def test_build_requirements_are_printed_one_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "tools/build_requires.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert any(line.startswith("torch==") for line in lines) and any("scikit-build-core" in line for line in lines)
