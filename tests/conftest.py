"""What every test may use: both modes, fresh counters, programs in a process of their own, bit equality."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import adaptive_eager
from adaptive_eager import _native

# Loops that tests compile are kept here and not where the user's are.
CACHE = tempfile.TemporaryDirectory(prefix="adaptive_eager_")


def pytest_configure(config: pytest.Config) -> None:
    """One thread for each worker: workers share the cores."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        torch.set_num_threads(1)


@pytest.fixture(params=["eager", "adaptive"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs in both modes."""
    with adaptive_eager.using_mode(request.param):
        yield request.param


@pytest.fixture
def reset() -> Iterator[None]:
    """Counters at zero and a fixed seed before the test, nothing pending and the old mode and constants after it."""
    mode, constants = adaptive_eager.mode(), adaptive_eager.config.as_dict()
    adaptive_eager.flush()
    adaptive_eager.reset_stats()
    torch.manual_seed(0)
    yield
    adaptive_eager.set_mode(mode)
    for name, value in constants.items():
        if adaptive_eager.config[name] != value:
            adaptive_eager.config[name] = value


def same_bits(found: torch.Tensor, expected: torch.Tensor) -> str:
    """Empty where both hold the same bits (any NaN is like any other), else what differs."""
    found, expected = (t.detach().cpu().resolve_conj().resolve_neg() for t in (found, expected))
    for what in ("dtype", "shape"):
        if getattr(found, what) != getattr(expected, what):
            return f"{what} {getattr(found, what)}, expected {getattr(expected, what)}"
    if found.is_complex():
        found, expected = torch.view_as_real(found), torch.view_as_real(expected)
    if found.is_floating_point():
        if found.element_size() == 1:  # float8 compares through a wider type, which holds all of its values
            found, expected = found.float(), expected.float()
        nan = expected.isnan()
        if not torch.equal(found.isnan(), nan):
            return "NaNs are at other places"
        found, expected = found.masked_fill(nan, 0), expected.masked_fill(nan, 0)
        if not torch.equal(found.signbit(), expected.signbit()):
            return f"signs differ: {found} expected {expected}"
    return "" if torch.equal(found, expected) else f"{found} expected {expected}"


def _assert_same(found: Any, expected: Any, where: str = "result") -> None:
    if isinstance(expected, torch.Tensor):
        problem = same_bits(found, expected)
        assert not problem, f"{where}: {problem}"
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            _assert_same(found[key], value, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for index, value in enumerate(expected):
            _assert_same(found[index], value, f"{where}[{index}]")
    else:
        assert found == expected or (found != found and expected != expected), f"{where}: {found} expected {expected}"


@pytest.fixture(scope="session")
def assert_same() -> Callable[..., None]:
    """assert_same(found, expected): the same structure of tensors with the same bits."""
    return _assert_same


@pytest.fixture(scope="session")
def agree(assert_same: Callable[..., None]) -> Callable[..., None]:
    """agree(program): program(device) gives the CPU's bits each time: while it is learned, recorded and replayed."""

    def check(program: Callable[[str], Any], rounds: int = 4) -> None:
        for seed in range(rounds):
            torch.manual_seed(seed)
            expected = program("cpu")
            torch.manual_seed(seed)
            assert_same(program("neuron"), expected, f"round {seed}")

    return check


@pytest.fixture(scope="session")
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """python("-c", code, NEURON_EAGER="adaptive"): runs a new interpreter with only these of our variables set."""

    def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        ours = ("NEURON_", "ADAPTIVE_EAGER_", "TORCH_DEVICE_BACKEND_AUTOLOAD")
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env["ADAPTIVE_EAGER_CACHE_DIR"] = CACHE.name
        return subprocess.run(
            [sys.executable, *map(str, args)],
            env=env | {"ADAPTIVE_EAGER_CACHE_DIR": CACHE.name} | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def little_memory() -> Iterator[Callable[[], None]]:
    """little_memory(): from now on the device can get 3 MiB more than it holds, until the test ends."""

    def limit() -> None:
        torch.neuron.empty_cache()
        _native.lib.ae_memory_set_limit(torch.neuron.memory_reserved() + (3 << 20))

    yield limit
    _native.lib.ae_memory_set_limit(0)


@pytest.fixture(scope="session")
def cli(python: Callable[..., Any]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """cli("run", "x.py"): the command line in a process of its own."""
    return lambda *args, **variables: python("-m", "adaptive_eager.profiler", *args, **variables)
