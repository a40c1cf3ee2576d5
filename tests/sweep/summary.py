"""Counts of the sweep."""

from typing import Any


def counts(rows: list[dict[str, Any]], crashed: list[str]) -> dict[str, Any]:
    ran = [row for row in rows if "cases" in row]
    return {
        "pairs": len(rows) + len(crashed),
        "cases": sum(row["cases"] for row in ran),
        "equal_in_eager": sum(row["eager"] for row in ran),
        "equal_in_adaptive": sum(row["adaptive"] for row in ran),
        "equal_in_both": sum(row["eager"] and row["adaptive"] for row in ran),
        "ops_recorded": sum(row["recorded"] for row in ran),
        "ops_direct": sum(row["direct"] for row in ran),
        "skipped": sum(bool(row["skips"]) for row in rows),
        "crashed": sorted(crashed),
    }


def line(rows: list[dict[str, Any]], crashed: list[str]) -> str:
    c = counts(rows, crashed)
    ops = c["ops_recorded"] + c["ops_direct"]
    return (
        f"sweep: {c['pairs']} pairs tested ({c['cases']} cases), {c['equal_in_eager']} equal in eager, "
        f"{c['equal_in_adaptive']} equal in adaptive, {c['skipped']} skipped, {len(crashed)} crashed; "
        f"{c['ops_recorded'] / max(ops, 1):.0%} of the {ops} ops in recorded runs were recorded"
    )


def unequal(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every pair that does not equal CPU in both modes, with why (skips) or what differs first."""
    found = []
    for row in rows:
        if row.get("eager") and row.get("adaptive"):
            continue
        first = row["failures"][0]["words"] if row.get("failures") else "not run"
        found.append({k: row[k] for k in ("kind", "name", "dtype", "skips")} | {"first": first})
    return sorted(found, key=lambda row: (row["kind"], row["name"], row["dtype"]))
