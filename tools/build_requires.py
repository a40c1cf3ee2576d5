"""Prints what pyproject.toml needs for a build, one requirement a line, for `pip install --no-build-isolation`."""

from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

print(*tomllib.loads(Path("pyproject.toml").read_text())["build-system"]["requires"], sep="\n")
