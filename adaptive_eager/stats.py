"""Counters since the start of the process or the last reset_stats()."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from . import _native
from ._reasons import direct_reasons, flush_reasons


@dataclass(frozen=True)
class Stats:
    ops_recorded: int
    ops_direct: int  # executed by themselves because they could not be recorded
    launches: int  # submissions to the executor: a directly executed op is one, a fragment is one
    fragments_compiled: int
    fragments_cached: int
    fragment_hits: int
    fragment_misses: int
    fragment_evictions: int
    compile_ns: int
    record_ns: int
    launch_ns: int
    pending_ops: int
    pending_bytes: int
    flush_reasons: dict[str, int]
    direct_reasons: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


COUNTERS = tuple(field.name for field in fields(Stats) if field.type is int)


def stats() -> Stats:
    lib = _native.lib
    raw = _native.ffi.new("ae_stats *")
    lib.ae_get_stats(raw)
    return Stats(
        **{name: int(getattr(raw, name)) for name in COUNTERS},
        flush_reasons={reason.name: reason.count for reason in flush_reasons()},
        direct_reasons={reason.name: reason.count for reason in direct_reasons()},
    )


def reset_stats() -> None:
    _native.lib.ae_reset_stats()
