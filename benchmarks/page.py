"""docs/benchmarks.md from what report.py measured. One section is written by hand and carried over."""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import words

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BY_HAND = "## Where we lose, and why"
NONE = "–"

Row = dict[str, Any]


def write(parts: Row, path: Path = PAGE) -> None:
    path.write_text(text(parts, path.read_text() if path.exists() else "") + "\n")


def text(parts: Row, before: str) -> str:
    """Sections in fixed order; a part that was not measured has none."""
    kept = re.search(rf"^{BY_HAND}\n.*?(?=^## |\Z)", before, re.DOTALL | re.MULTILINE)
    blocks = ["# Benchmarks", words.INTRODUCTION, machine(parts)]
    for part, section in SECTIONS.items():
        if part in parts:
            blocks += section(parts[part]["found"])
        if part == "models-1":
            blocks.append(kept.group().strip() if kept else f"{BY_HAND}\n\nNot written yet.")
    return "\n\n".join(blocks)


def machine(parts: Row) -> str:
    machines = [part["machine"] for part in parts.values()]
    if not machines:
        return "Nothing was measured yet."
    lines = []
    for name in machines[0]:
        seen = sorted({str(m.get(name, NONE)) for m in machines})
        lines.append(
            (name, seen[0] if len(seen) == 1 else f"{seen[0]} to {seen[-1]}" if name == "date" else "; ".join(seen))
        )
    return table(("machine", ""), lines, "ll")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    sides = align or "l" + "r" * (len(head) - 1)
    rule = ["---:" if side == "r" else "---" for side in sides]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def x(found: Row | None, quartiles: bool = False) -> str:
    if not found or "x" not in found:
        return NONE
    digits = 1 if found["x"] >= 100 else 2
    middle = f"{found['x']:.{digits}f}"
    return f"{middle} ({found['low']:.{digits}f}–{found['high']:.{digits}f})" if quartiles else middle


def us(number: float) -> str:
    return f"{number:,.1f}" if number < 1000 else f"{number:,.0f}"


def mean(found: Iterable[Row | None]) -> str:
    ratios = [f["x"] for f in found if f and "x" in f]
    return f"{math.exp(statistics.fmean(map(math.log, ratios))):.2f}" if ratios else NONE


def yes(value: bool) -> str:
    return "yes" if value else "**no**"


def bullets(lines: Iterable[str]) -> list[str]:
    """One block, or none."""
    block = "\n".join(f"- {line}" for line in dict.fromkeys(lines))
    return [block] if block else []


def failures(rows: Iterable[Row]) -> list[str]:
    return bullets(f"`{row['name']}` was not measured: {row['failed']}." for row in rows if "failed" in row)


def programs(title: str, *text: str) -> Callable[[list[Row]], list[str]]:
    def section(rows: list[Row]) -> list[str]:
        good = [row for row in rows if "failed" not in row]
        lines = [
            (
                f"`{row['name']}`",
                us(row["kept"]["base_us"]),
                us(row["kept"]["us"]),
                x(row["kept"], True),
                x(row["last"]),
                x(row["dropped"]),
                x(row["limit"]),
                f"{row['kept']['launches']:.3g}",
                yes(row["bits"]),
            )
            for row in good
        ]
        columns = ("kept", "last", "dropped", "limit")
        means = [mean(row[column] for row in good) for column in columns]
        lines.append(("geometric mean", "", "", *means, "", f"{sum(row['bits'] for row in good)} of {len(good)}"))
        head = ("program", "stock, us", "ours, us", "x kept", "x last", "x dropped", "limit", "launches", "bits equal")
        notes = [f"`{row['name']}`: bits differ, {row['problem']}." for row in good if not row["bits"]]
        notes += [f"`{row['name']}` has no limit: {row['limit']['why']}." for row in good if "why" in row["limit"]]
        least = min((row["kept"]["x"] for row in good), default=math.nan)
        summary = f"Least x kept: {least:.2f}. Launches are per step."
        return [f"## {title}", *text, table(head, lines), summary, *bullets(notes), *failures(rows)]

    return section


def compiling(rows: list[Row]) -> list[str]:
    """What the programs at one thread had compiled."""
    lines, refused = [], []
    every: list[float] = []
    for row in rows:
        loops = row.get("kernels", [])
        ms = [loop["ns"] / 1e6 for loop in loops if loop["state"] == "ready" and not loop["cached"]]
        every += ms
        failed = [loop for loop in loops if loop["state"] == "failed"]
        refused += [f"Refused in `{row['name']}`: {loop['name']}, {loop['why']}." for loop in failed]
        middle, most = (f"{statistics.median(ms):.1f}", f"{max(ms):.1f}") if ms else (NONE, NONE)
        lines.append((f"`{row['name']}`", str(len(ms)), str(len(failed)), middle, most, f"{sum(ms):.0f}"))
    if every:
        total = (f"{statistics.median(every):.1f}", f"{max(every):.1f}", f"{sum(every):.0f}")
        lines.append(("all", str(len(every)), str(len(refused)), *total))
    head = ("program", "loops", "refused", "median, ms", "longest, ms", "together, ms")
    return ["## Compile times", words.COMPILING, table(head, lines), *bullets(refused)]


def at_one_thread(rows: list[Row]) -> list[str]:
    return [*programs("Programs, one thread")(rows), *compiling(rows)]


def start(rows: list[Row]) -> list[str]:
    def step(found: Row) -> str:
        return f"{found['steps'][2]:.2f}" if "steps" in found else NONE

    def ready(found: Row) -> str:
        return NONE if found.get("ready_s") is None else f"{found['ready_s'] * 1e3:,.0f}"

    lines = [
        (f"`{row['name']}`", step(cold), step(warm), ready(cold), ready(warm))
        for row in rows
        for cold, warm in [(row["cold"], row["warm"])]
    ]
    head = ("program", "3rd step, empty cache", "filled cache", "90% after, ms, empty cache", "filled cache")
    failed = [{"name": row["name"]} | row[cache] for row in rows for cache in ("cold", "warm")]
    return ["## The first steps", words.START, table(head, lines), *failures(failed)]


def bandwidth(rows: list[Row]) -> list[str]:
    rates = ("chain_gb_s", "copy_gb_s", "stock_copy_gb_s")
    lines = [
        (str(row["threads"]), *(f"{row[rate]:.1f}" for rate in rates), x(row["to_copy"], True), yes(row["bits"]))
        for row in rows
        if "failed" not in row
    ]
    head = ("threads", "chain, GB/s", "copy, GB/s", "in stock's memory, GB/s", "x", "bits equal")
    return ["## Memory speed", words.BANDWIDTH, table(head, lines)]


def compiled(rows: list[Row]) -> list[str]:
    good = [row for row in rows if "failed" not in row]
    lines = [
        (
            f"`{row['name']}`",
            x(row["compiled"], True),
            x(row["own"], True),
            x(row["own_to_compiled"]),
            f"{row['compile_s']:,.1f}",
            yes(row["bits"]),
        )
        for row in good
    ]
    means = [mean(row[column] for row in good) for column in ("compiled", "own", "own_to_compiled")]
    lines.append(("geometric mean", *means, "", f"{sum(row['bits'] for row in good)} of {len(good)}"))
    head = ("program", "x torch.compile", "x ours", "torch.compile / ours", "compile, s", "bits equal")
    return ["## torch.compile", words.COMPILED, table(head, lines), *failures(rows)]


WAYS = {"mlx": ("lazy", "compiled"), "jax": ("op by op", "jit"), "xla": ("lazy",)}
PEER_NAMES = {"mlx": "MLX", "jax": "JAX", "xla": "torch_xla"}


def peers(rows: list[Row]) -> list[str]:
    good = [row for row in rows if "failed" not in row]
    ways = [(peer, way) for peer in WAYS for way in WAYS[peer] if any(peer in row["peers"] for row in good)]
    versions: dict[str, str] = {}
    notes: list[str] = []

    def cell(row: Row, peer: str, way: str) -> str:
        found = row["peers"].get(peer, {"failed": "it was left out"})
        if "failed" in found:
            notes.append(f"`{row['name']}`, {PEER_NAMES[peer]}: {found['failed']}.")
            return NONE
        versions[peer] = f"{PEER_NAMES[peer]} {found['version']}"
        one = found["ways"][way]
        bits = "equal" if one["bits"] else "not equal"
        return f"{row['us']['cpu'] / one['us']:.2f} ({bits}, {max(one['first_s'], 0):.1f} s)"

    lines = [
        (
            f"`{row['name']}`",
            us(row["us"]["cpu"]),
            f"{row['us']['cpu'] / row['us']['own']:.2f}",
            *(cell(row, *way) for way in ways),
        )
        for row in good
    ]
    head = ("program", "stock, us", "x ours", *(f"x {PEER_NAMES[peer]}, {way}" for peer, way in ways))
    told = f"{', '.join(versions.values()) or 'None could be installed'}. {words.PEERS}"
    return ["## Other frameworks", told, table(head, lines), *bullets(notes), *failures(rows)]


def launch(found: Row) -> list[str]:
    lines = [
        (
            row["name"],
            us(row["us"]["cpu"]),
            us(row["us"]["eager"]),
            f"{row['x']['eager']:.2f}",
            us(row["us"]["adaptive"]),
            f"{row['x']['adaptive']:.2f}",
            f"{row['launches']['eager']:.3g} → {row['launches']['adaptive']:.2g}",
        )
        for row in found["rows"]
    ]
    head = ("op", "stock, us", "eager, us", "x eager", "adaptive, us", "x adaptive", "launches")
    return ["## Small ops", words.SMALL_OPS, table(head, lines), *bullets(found["notes"])]


def long_runs(found: list[str]) -> list[str]:
    return ["## Long runs", *bullets(found)]


SECTIONS: dict[str, Callable[[Any], list[str]]] = {
    "models-1": at_one_thread,
    "models-2": programs("Programs, two threads"),
    "models-core": programs("Programs, one thread on one core", words.ONE_CORE),
    "start": start,
    "bandwidth": bandwidth,
    "compile": compiled,
    "peers": peers,
    "launch": launch,
    "soak": long_runs,
}
