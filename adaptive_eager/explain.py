"""Where the launches of this process went: regions by time, why each ended, what ran by itself and why."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from . import _native
from ._reasons import Reason, direct_reasons, flush_reasons

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def _counted(reasons: list[Reason]) -> list[dict[str, Any]]:
    seen = sorted((reason for reason in reasons if reason.count), key=lambda reason: -reason.count)
    return [{"reason": r.name, "count": r.count, "text": r.text, "hint": r.hint} for r in seen]


def collect() -> dict[str, Any]:
    """The data behind explain(), as JSON can carry it."""
    data: dict[str, Any] = json.loads(_native.take_text(_native.lib.ae_explain()))
    hints = {reason.name: reason.hint for reason in direct_reasons()}
    for row in data["direct"]:
        row["hint"] = hints.get(row["reason"], "")
    data["flush_reasons"] = _counted(flush_reasons())
    data["direct_reasons"] = _counted(direct_reasons())
    return data


def summary(ops: list[str], most: int = 4) -> str:
    """A region in a few words: its most frequent ops, and how many there are."""
    counts = Counter(op.removeprefix("aten::") for op in ops)
    shown = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in counts.most_common(most))
    return f"{len(ops)} ops: {shown}" + (", ..." if len(counts) > most else "")


def _table(title: str, *columns: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("count", "launches", "ms") else "left", overflow="fold")
    return table


def show(data: dict[str, Any], console: "Console", limit: int = 20) -> None:
    for title, key in (("Why regions ended", "flush_reasons"), ("Why ops ran by themselves", "direct_reasons")):
        if data[key]:
            table = _table(title, "reason", "count", "what and what to do")
            for row in data[key][:limit]:
                table.add_row(row["reason"], f"{row['count']:,}", f"{row['text']}. {row['hint']}")
            console.print(table, "")
    if data["direct"]:
        table = _table("Ops that ran by themselves", "op", "reason", "count")
        for row in data["direct"][:limit]:
            table.add_row(row["op"], row["reason"], f"{row['count']:,}")
        console.print(table, "")
    if data["regions"]:
        table = _table("Regions by time", "launches", "ms", "ended by", "ops")
        for row in data["regions"][:limit]:
            ends = ", ".join(sorted(row["ends"], key=lambda name: -row["ends"][name]))
            table.add_row(f"{row['launches']:,}", f"{row['ns'] / 1e6:.1f}", ends, summary(row["ops"]))
        console.print(table, "")
    if not (data["regions"] or data["direct"]):
        console.print("Nothing was recorded: the mode was eager, or no op ran on the neuron device.")


def explain() -> dict[str, Any]:
    """Prints where this process's launches went, and returns the same as data."""
    from rich.console import Console

    data = collect()
    show(data, Console())
    return data
