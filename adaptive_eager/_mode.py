"""Per-op or batched: reading, setting and scoping the mode, and launching what is recorded."""

from collections.abc import Iterator
from contextlib import contextmanager

from . import _compile, _native
from ._env import MODES
from ._reasons import flush_reason_index


def mode() -> str:
    """`eager` or `adaptive`."""
    return MODES[_native.lib.ae_mode()]


def set_mode(name: str) -> None:
    """Launches what is recorded, then runs ops one by one (`eager`) or in batches (`adaptive`)."""
    if name not in MODES:
        raise ValueError(f"mode is {name!r}, expected {' or '.join(map(repr, MODES))}")
    _native.check(_native.lib.ae_set_mode(MODES.index(name)))
    if name == "adaptive":
        _compile.start()


@contextmanager
def using_mode(name: str) -> Iterator[None]:
    """The mode `name` inside the block, the mode before it afterwards."""
    before = mode()
    set_mode(name)
    try:
        yield
    finally:
        set_mode(before)


def flush() -> None:
    """Launches what is recorded and waits for it. Never needed for right results."""
    _native.check(_native.lib.ae_flush(flush_reason_index("user_flush")))
