"""Loading the device: by `import torch` alone, in any order of imports, and never at torch's expense."""

import pytest

WORKS = "import torch; assert (torch.ones(3) + 1).sum().item() == 6; print('torch works')"
DEVICE = "import torch; print((torch.ones(3, device='neuron') + 1).tolist())"


def refused(python, before: str = "", **variables: str) -> str:
    """The warning of a program in which the device cannot load and torch still works."""
    done = python("-c", f"{before}\n{WORKS}", **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "torch works"
    warnings = [line for line in done.stderr.splitlines() if "AdaptiveEagerWarning" in line]
    assert len(warnings) == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    return warnings[0]


ORDERS = {
    "torch first": "import torch, adaptive_eager",
    "package first": "import adaptive_eager",
    "package used first": "import adaptive_eager; adaptive_eager.stats()",
}


def test_importing_torch_is_enough(python) -> None:
    done = python("-c", DEVICE)
    assert (done.stdout.strip(), done.stderr) == ("[2.0, 2.0, 2.0]", "")


@pytest.mark.parametrize("imports", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_device_loads_in_any_order_of_imports(python, imports: str, autoload: str) -> None:
    done = python("-c", f"{imports}\n{DEVICE}", TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    assert (done.stdout.strip(), done.stderr) == ("[2.0, 2.0, 2.0]", "")


def test_importing_the_package_leaves_torch_to_the_program(python) -> None:
    done = python("-c", "import adaptive_eager, sys; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_switched_off_autoload_leaves_torch_alone(python) -> None:
    done = python("-c", f"{WORKS}; print(hasattr(torch, 'neuron'))", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (done.stdout.split("\n")[1], done.stderr) == ("False", "")


MISSING = """
from pathlib import Path
from adaptive_eager import _native
find = _native.find
def missing(name):
    if name.endswith(".so"):
        raise FileNotFoundError(f"{name} is missing from here")
    return find(name)
_native.find = missing
"""


def test_missing_library_is_one_warning(python) -> None:
    assert "its native library is not installed (libadaptive_eager.so is missing from here)" in refused(python, MISSING)


def test_unloadable_library_is_one_warning(python, tmp_path) -> None:
    (tmp_path / "broken.so").write_text("not a library")
    before = f"from adaptive_eager import _native; _native.library_path = lambda: {str(tmp_path / 'broken.so')!r}"
    assert "its native library does not load with torch" in refused(python, before)


def test_other_torch_is_one_warning(python) -> None:
    before = "import torch; torch.__version__ = '2.14.1'; import adaptive_eager"
    warning = refused(python, before, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "it was built for torch 2.13" in warning and "this is torch 2.14.1" in warning


def test_other_backend_name_is_one_warning(python) -> None:
    before = "import torch; torch.utils.rename_privateuse1_backend('other'); import adaptive_eager"
    assert "another backend, 'other'" in refused(python, before, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_other_backend_kernels_are_one_warning(python) -> None:
    before = """
import torch
other = torch.library.Library("aten", "IMPL")
other.impl("empty.memory_format", lambda *args, **kwargs: None, "PrivateUse1")
import adaptive_eager
"""
    assert "already registered kernels" in refused(python, before, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_api_raises_the_cause_after_a_refused_load(python) -> None:
    program = f"""
{MISSING}
import warnings; warnings.simplefilter("ignore")
import torch, adaptive_eager
for use in (adaptive_eager.mode, adaptive_eager.stats, adaptive_eager.flush, lambda: adaptive_eager.config.max_nodes):
    try:
        use()
    except adaptive_eager.AdaptiveEagerError as error:
        print("missing from here" in str(error))
"""
    done = python("-c", program)
    assert done.stdout.split() == ["True"] * 4, done.stderr


def test_load_log_tells_more_of_a_refused_load(python) -> None:
    done = python("-c", f"{MISSING}\n{WORKS}", ADAPTIVE_EAGER_LOGS="+load")
    assert "Traceback" in done.stderr and "[adaptive_eager.load]" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("NEURON_EAGER", "fast", "NEURON_EAGER is 'fast', expected eager or adaptive; using eager."),
        ("NEURON_LAUNCH_BLOCKING", "yes", "NEURON_LAUNCH_BLOCKING is 'yes', expected 0 or 1; using 0."),
        (
            "ADAPTIVE_EAGER_MAX_NODES",
            "many",
            "ADAPTIVE_EAGER_MAX_NODES is 'many', expected 64 to 16777216; using 65536.",
        ),
        ("ADAPTIVE_EAGER_MAX_NODES", "1", "ADAPTIVE_EAGER_MAX_NODES is '1', expected 64 to 16777216; using 65536."),
        ("ADAPTIVE_EAGER_LOGS", "lod", "ADAPTIVE_EAGER_LOGS is 'lod', expected a comma-separated list of load"),
        ("ADAPTIVE_EAGER_MAX_NODE", "64", "did you mean ADAPTIVE_EAGER_MAX_NODES?"),
    ],
)
def test_bad_variable_is_one_warning_and_the_default(python, name: str, value: str, sentence: str) -> None:
    assert sentence in refused(python, **{name: value})
    done = python("-c", f"{DEVICE}; import adaptive_eager; print(adaptive_eager.mode())", **{name: value})
    assert done.stdout.split("\n")[:2] == ["[2.0, 2.0, 2.0]", "eager"], done.stderr


def test_warnings_as_errors_do_not_break_the_import(python) -> None:
    done = python("-W", "error", "-c", WORKS, NEURON_EAGER="fast")
    assert (done.returncode, done.stdout.strip()) == (0, "torch works")
    assert done.stderr == "adaptive_eager: NEURON_EAGER is 'fast', expected eager or adaptive; using eager.\n"


def test_variables_set_mode_blocking_and_constants(python) -> None:
    program = """
import torch, adaptive_eager
from adaptive_eager import _native
print(adaptive_eager.mode(), _native.lib.ae_launch_blocking(), adaptive_eager.config.max_nodes)
"""
    done = python("-c", program, NEURON_EAGER="adaptive", NEURON_LAUNCH_BLOCKING="1", ADAPTIVE_EAGER_MAX_NODES="99")
    assert done.stdout.split() == ["adaptive", "1", "99"], done.stderr
