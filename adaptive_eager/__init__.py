"""Adaptive eager mode for PyTorch's `neuron` device: eager ops in few launches, bit for bit.

Importing this package imports torch only where torch would not autoload the device by itself, so that a program may
still set what torch reads from the environment.
"""

import os as _os
import sys as _sys

from ._errors import AdaptiveEagerError
from ._mode import flush, mode, set_mode, using_mode
from .config import config
from .explain import explain
from .stats import Stats, reset_stats, stats

__all__ = [
    "AdaptiveEagerError",
    "Stats",
    "config",
    "explain",
    "flush",
    "mode",
    "reset_stats",
    "set_mode",
    "stats",
    "using_mode",
]


def _autoload() -> None:
    """What torch calls at the end of `import torch` (entry point group torch.backends). Never raises."""
    from ._load import load

    load()


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("adaptive-eager")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "torch" in _sys.modules or _os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
    _autoload()
