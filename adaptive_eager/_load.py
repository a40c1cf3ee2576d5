"""Brings the device up, once, and remembers why if it could not. Whatever goes wrong, torch stays usable.

Everything that can be refused is checked before anything of torch's is changed, so a refused load leaves no trace.
"""

import atexit
import threading
from typing import Any

from . import _compile, _env, _logs, _native
from ._warn import warn

NAME = "neuron"

failure: str | None = None
_done = False
_lock = threading.RLock()
_log = _logs.logger("load")


class Refused(Exception):
    """The device cannot be loaded here; the message is one clause that says why."""


def load() -> None:
    """Loads the device unless that was tried before. Never raises."""
    global failure, _done
    try:
        import torch  # outside of the lock: importing torch may call us, in this thread or in another
    except Exception as error:
        failure = f"torch cannot be imported: {error}"
        return
    with _lock:
        if _done:
            return
        _done = True
        problems: list[str] = []
        _logs.enable(_env.read(_env.LOGS, problems))
        try:
            _bring_up(torch, problems)
        except Exception as error:
            failure = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            _log.debug("loading failed", exc_info=True)
            _native.forget_library()
            problems.append(f"the neuron device is not available: {failure}. ADAPTIVE_EAGER_LOGS=+load shows more.")
        for sentence in problems:
            warn(sentence)


def _bring_up(torch: Any, problems: list[str]) -> None:
    _refuse_other_backend(torch)
    _open(torch)
    lib = _native.lib
    torch.utils.rename_privateuse1_backend(NAME)
    _native.check(lib.ae_init())
    atexit.register(_compile.stop)  # runs after ae_shutdown, which wakes its thread
    atexit.register(lib.ae_shutdown)

    from . import _patches, neuron

    torch._register_device_module(NAME, neuron)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _patches.apply()
    _configure(problems)
    _log.info("loaded %s, built for torch %s", _native.library_path(), _native.text(lib.ae_built_torch_version()))


def _refuse_other_backend(torch: Any) -> None:
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", NAME):
        raise Refused(f"another backend, {name!r}, already took the place of torch's PrivateUse1 device")
    if torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", "PrivateUse1"):
        raise Refused("another backend already registered kernels for torch's PrivateUse1 device")
    if hasattr(torch, NAME):
        raise Refused(f"another package already registered torch.{NAME}")


def _open(torch: Any) -> None:
    try:
        _native.open_library()
    except FileNotFoundError as error:
        raise Refused(f"its native library is not installed ({error})") from error
    except OSError as error:
        reason = str(error).split(".  Additionally")[0]  # cffi goes on about where else it looked
        raise Refused(f"its native library does not load with torch {torch.__version__} ({reason})") from error
    lib = _native.lib
    abi = lib.ae_abi_version()
    if abi != _native.ABI_VERSION:
        raise Refused(f"its native library has ABI {abi}, expected {_native.ABI_VERSION}; reinstall adaptive-eager")
    built = _native.text(lib.ae_built_torch_version())
    if _release(built) != _release(torch.__version__):
        raise Refused(f"it was built for torch {built} and this is torch {torch.__version__}; reinstall adaptive-eager")


def _release(version: str) -> list[str]:
    """2.13.0+cpu -> 2.13: the C++ ABI holds within a minor release."""
    return str(version).split("+")[0].split(".")[:2]


def _configure(problems: list[str]) -> None:
    from .config import policies

    lib = _native.lib
    for policy in policies().values():
        value = _env.read(policy.variable, problems)
        if value != policy.initial:
            _native.check(lib.ae_policy_set(policy.index, value))
    lib.ae_set_launch_blocking(_env.read(_env.LAUNCH_BLOCKING, problems))
    _compile.configure(problems)
    mode = _env.read(_env.MODE, problems)
    _native.check(lib.ae_set_mode(_env.MODES.index(mode)))
    if mode == "adaptive":
        _compile.start()
    known = [variable.name for variable in _env.TABLE] + [policy.variable.name for policy in policies().values()]
    problems.extend(_env.unknown(known))
