"""Why regions ended and why ops ran by themselves: the native tables with their counts."""

from dataclasses import dataclass
from functools import cache

from . import _native


@dataclass(frozen=True)
class Reason:
    name: str
    text: str
    hint: str
    count: int


def _table(count: object, describe: object) -> list[Reason]:
    return [
        Reason(_native.text(row.name), _native.text(row.text), _native.text(row.hint), int(row.count))
        for row in _native.rows("ae_reason", count, describe)
    ]


def flush_reasons() -> list[Reason]:
    lib = _native.lib
    return _table(lib.ae_flush_reason_count, lib.ae_flush_reason)


def direct_reasons() -> list[Reason]:
    lib = _native.lib
    return _table(lib.ae_direct_reason_count, lib.ae_direct_reason)


@cache
def flush_reason_index(name: str) -> int:
    return [reason.name for reason in flush_reasons()].index(name)
