"""`python -m tests.sweep [pytest options]`: runs the sweep and prints its counts as JSON on stdout."""

import contextlib
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from .summary import counts, unequal


class Rows:
    """Takes over what the sweep's conftest collected."""

    def pytest_sessionfinish(self, session):
        rows = session.config.pluginmanager.get_plugin("sweep-rows")
        self.rows, self.crashed = rows.rows, rows.crashed


def main() -> int:
    collected = Rows()
    arguments = [str(Path(__file__).parent), "-q", "--tb=line", "-n", "2", *sys.argv[1:]]
    with contextlib.redirect_stdout(sys.stderr):
        status = pytest.main(arguments, plugins=[collected])
    kinds = Counter(row["kind"] for row in collected.rows)
    by_kind = {kind: counts([r for r in collected.rows if r["kind"] == kind], []) for kind in sorted(kinds)}
    document = {"schema_version": 1, "all": counts(collected.rows, collected.crashed), "by_kind": by_kind}
    document["unequal"] = unequal(collected.rows)
    json.dump(document, sys.stdout, indent=1)
    print()
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
