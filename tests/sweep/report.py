"""From a verdict to a test's outcome: skips are applied here, and the counts leave through pytest's properties."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from . import skips
from .cases import Case, Failure, Verdict, check

SHOWN = 6


def settle(
    kind: str, name: str, dtype: str, cases: Callable[[], Sequence[Case]], record: Callable[[str, Any], None]
) -> None:
    known = skips.matching(name, dtype)
    row: dict[str, Any] = {"kind": kind, "name": name, "dtype": dtype}
    verdict: Verdict = check(cases())
    left = [failure for failure in verdict.failures if not any(_excuses(skip, failure) for skip in known)]
    modes = {failure.mode for failure in verdict.failures}
    row |= {"cases": verdict.cases, "raised": verdict.raised, "recorded": verdict.recorded, "direct": verdict.direct}
    row |= {"eager": "eager" not in modes, "adaptive": "adaptive" not in modes}
    used = [skip for skip in known if any(_excuses(skip, failure) for failure in verdict.failures)]
    row |= {"skips": [skip.reason for skip in used], "failures": [vars(failure) for failure in verdict.failures[:200]]}
    record("sweep", row)
    if left:
        shown = "\n".join(str(failure) for failure in left[:SHOWN])
        pytest.fail(f"{len(left)} of {verdict.cases} cases x modes differ from CPU:\n{shown}", pytrace=False)
    if unused := [skip.reason for skip in known if skip.always and skip not in used]:
        pytest.fail(f"skips that are no longer needed: {unused}", pytrace=False)
    if used:
        pytest.skip("; ".join(row["skips"]))


def _excuses(skip: skips.Skip, failure: Failure) -> bool:
    within = (not skip.parts or failure.part in skip.parts) and (not skip.modes or failure.mode in skip.modes)
    return within and skip.words in failure.words
