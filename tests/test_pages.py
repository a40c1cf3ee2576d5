"""What README and the architecture page say is so: the example runs, the tour names every file."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_readme_example_runs(python: Callable[..., object]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].isdigit()


def test_tour_names_every_file_of_native_and_no_other() -> None:
    tour = (ROOT / "docs/architecture.md").read_text().split("## A tour of `native/`")[1].split("\n## ")[0]
    named = {Path(name).name.split(".")[0] for name in re.findall(r"`([\w./]+)`", tour)} - {""}
    folders = {folder.name for folder in (ROOT / "native").iterdir() if folder.is_dir()}
    files = {file.name.split(".")[0] for pattern in ("*.cpp", "*.h") for file in (ROOT / "native").rglob(pattern)}
    assert named - folders - {"native"} == files - folders


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_files_and_links_of_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    folder = (ROOT / page).parent
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    files = re.findall(
        r"`((?:native|ops|recorder|runtime|device|common|tables|adaptive_eager|tests|docs|tools)/[\w./]+\.\w+)`", text
    )
    missing = [name for name in links if name and not (folder / name).exists()]
    missing += [name for name in files if not any((base / name).exists() for base in (ROOT, ROOT / "native"))]
    assert not missing
