"""The first line of every report: launches, cache hits, what ended regions, what was not recorded."""

from typing import Any

from rich.console import Console
from rich.text import Text

from adaptive_eager.explain import show

from .recording import Recording


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def headline(stats: dict[str, Any]) -> str:
    ops = stats["ops_recorded"] + stats["ops_direct"]
    launches = stats["launches"]
    if not launches:
        return "no launches on the neuron device"
    parts = [f"launches {ops:,} eager -> {launches:,}, {ops / launches:.1f}x fewer"]
    lookups = stats["fragment_hits"] + stats["fragment_misses"]
    parts.append(f"cache hits {_percent(stats['fragment_hits'], lookups)}")
    name, count = max(stats["flush_reasons"].items(), key=lambda item: item[1], default=("", 0))
    parts.append(f"top flush {name} {count:,}" if count else "no flushes")
    parts.append(f"direct {_percent(stats['ops_direct'], ops)}")
    return " | ".join(parts)


def print_report(recording: Recording, console: Console, limit: int = 20) -> None:
    console.print(Text(headline(recording.stats), style="bold"), soft_wrap=True)
    console.print()
    show(recording.explain, console, limit)
