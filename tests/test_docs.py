"""Generated pages are up to date, and name everything that the code reads."""

import re
from pathlib import Path

from adaptive_eager import _env
from adaptive_eager._reasons import direct_reasons, flush_reasons
from adaptive_eager.config import policies

DOCS = Path(__file__).parents[1] / "docs"


def test_environment_page_is_up_to_date(python) -> None:
    done = python(str(DOCS / "generate.py"), "--check")
    assert done.returncode == 0, done.stderr


def test_environment_page_has_every_variable_constant_and_reason() -> None:
    page = (DOCS / "environment.md").read_text()
    rows = (*_env.TABLE, *policies().values(), *flush_reasons(), *direct_reasons())
    assert not [row.name for row in rows if f"`{row.name}`" not in page]


def test_every_variable_of_the_sources_is_in_the_table() -> None:
    root = Path(__file__).parents[1]
    known = {v.name for v in _env.TABLE} | {p.variable.name for p in policies().values()}
    read = re.compile(r"""(?:environ|getenv)\W+(?:get\W+)?["']((?:NEURON|ADAPTIVE_EAGER)_\w+)["']""")
    for folder, pattern in (("adaptive_eager", "*.py"), ("profiler", "*.py"), ("native", "*.cpp"), ("native", "*.h")):
        for file in (root / folder).rglob(pattern):
            assert set(read.findall(file.read_text())) <= known, file
