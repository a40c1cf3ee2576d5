"""`adaptive-eager doctor` and `bench --quick`."""

import torch

from adaptive_eager.config import policies
from adaptive_eager.profiler import bench, selftest


def test_doctor_shows_the_installation_and_passes(cli) -> None:
    done = cli("doctor", NEURON_EAGER="adaptive", COLUMNS="200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert torch.__version__ in done.stdout and "libadaptive_eager.so" in done.stdout
    assert "NEURON_EAGER" in done.stdout
    for name in policies():
        assert name in done.stdout
    assert done.stdout.count("same bits as the CPU") == 2


def test_doctor_fails_with_the_cause_where_the_device_is_missing(python) -> None:
    code = """
import sys, torch
torch.utils.rename_privateuse1_backend("other")
from adaptive_eager.profiler.cli import main
sys.exit(main(["doctor"]))
"""
    done = python("-c", code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 1
    assert "adaptive-eager: the neuron device is not available: another backend, 'other'" in done.stderr


def test_self_test_finds_other_bits() -> None:
    expected = selftest.train("cpu")
    assert selftest.check("adaptive", expected) == ""
    expected[0] = torch.nextafter(expected[0], expected[0] + 1)
    assert selftest.check("adaptive", expected) == f"1 of {len(expected)} tensors differ from the CPU's"


def test_self_test_reports_an_error_instead_of_raising() -> None:
    def broken(device: str) -> list[torch.Tensor]:
        raise RuntimeError("no kernel")

    assert selftest.check("eager", [], broken) == "RuntimeError: no kernel"


def test_bench_prints_a_row_for_each_op_class(cli) -> None:
    done = cli("bench", "--quick")
    assert done.returncode == 0, done.stderr
    for name in bench.OPS:
        assert name in done.stdout
