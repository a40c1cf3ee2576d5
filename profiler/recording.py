"""What one run did with its launches, and the versioned JSON file that keeps it."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import adaptive_eager
from adaptive_eager.explain import collect

from .errors import ToolError

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Recording:
    command: list[str]
    mode: str
    versions: dict[str, str]
    stats: dict[str, Any]
    explain: dict[str, Any]


def take(command: Sequence[str]) -> Recording:
    """Of this process, up to now."""
    import torch

    adaptive_eager.flush()
    return Recording(
        command=list(command),
        mode=adaptive_eager.mode(),
        versions={"adaptive_eager": adaptive_eager.__version__, "torch": torch.__version__},
        stats=adaptive_eager.stats().as_dict(),
        explain=collect(),
    )


def refuse_overwrite(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise ToolError(f"{path} exists; -f overwrites it")
    if not path.parent.is_dir():
        raise ToolError(f"{path.parent} is not a folder")


def write(recording: Recording, path: Path, force: bool) -> None:
    """Whole or not at all."""
    refuse_overwrite(path, force)
    text = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(recording)}, indent=1)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "w") as file:
                file.write(text + "\n")
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ToolError(f"cannot write {path}: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read(path: Path) -> Recording:
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolError(f"{path} is not a file that `run -o` wrote: {error}") from error
    version = data.pop("schema_version", None) if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise ToolError(f"{path} has schema_version {version}, expected {SCHEMA_VERSION}")
    try:
        return Recording(**data)
    except TypeError as error:
        raise ToolError(f"{path} is damaged: {error}") from error
