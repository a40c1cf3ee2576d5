"""Every environment variable that the package reads: one table, from which the parser and the docs come."""

import difflib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._logs import COMPONENTS, parse_logs

MODES = ("eager", "adaptive")


@dataclass(frozen=True)
class Variable:
    name: str
    values: str  # the good ones, as a sentence names them
    default: str
    meaning: str
    parse: Callable[[str], Any]  # raises ValueError


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return parse


def flag(text: str) -> bool:
    return one_of("0", "1")(text) == "1"


def integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def folder(text: str) -> Path | None:
    """None where the variable is not set."""
    if not text:
        return None
    path = os.path.abspath(os.path.expanduser(text))
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(text)
    return Path(path)


MODE = Variable(
    "NEURON_EAGER",
    " or ".join(MODES),
    "eager",
    "How ops run: one by one, or recorded and launched in batches.",
    one_of(*MODES),
)
LAUNCH_BLOCKING = Variable(
    "NEURON_LAUNCH_BLOCKING", "0 or 1", "0", "With 1, every op runs, and raises its errors, at its call.", flag
)
CACHE_DIR = Variable(
    "ADAPTIVE_EAGER_CACHE_DIR",
    "a directory",
    "",
    "Where compiled loops are kept. Not set: `adaptive_eager` in the user's cache directory (`~/.cache`).",
    folder,
)
CACHE_BYTES = Variable(
    "ADAPTIVE_EAGER_CACHE_BYTES",
    f"0 to {1 << 40}",
    str(64 << 20),
    "Most bytes of compiled loops on disk; the least recently used go first. 0 keeps none.",
    integer(0, 1 << 40),
)
LOGS = Variable(
    "ADAPTIVE_EAGER_LOGS",
    "a comma-separated list of " + ", ".join(f"{name} (+{name} for more)" for name in COMPONENTS),
    "",
    "Logs on stderr: " + "; ".join(f"`{name}`: {what}" for name, what in COMPONENTS.items()) + ".",
    parse_logs,
)
TABLE = (MODE, LAUNCH_BLOCKING, CACHE_DIR, CACHE_BYTES, LOGS)


def policy_variable(name: str, initial: int, low: int, high: int, why: str) -> Variable:
    """The variable that sets a policy constant; the constants' own table is the native library's."""
    return Variable(f"ADAPTIVE_EAGER_{name.upper()}", f"{low} to {high}", str(initial), why, integer(low, high))


def read(variable: Variable, problems: list[str]) -> Any:
    """The variable's value, or its default and one more sentence in `problems`. Empty means unset."""
    text = os.environ.get(variable.name, "").strip()
    if text:
        try:
            return variable.parse(text)
        except ValueError:
            instead = f"using {variable.default}" if variable.default else "ignored"
            problems.append(f"{variable.name} is {text!r}, expected {variable.values}; {instead}.")
    return variable.parse(variable.default)


def unknown(known: Iterable[str]) -> list[str]:
    """One sentence for each variable with our prefix that nothing reads: most likely a typing error."""
    names = sorted(known)
    problems = []
    for name in sorted(os.environ):
        if name.startswith("ADAPTIVE_EAGER_") and name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {close[0]}?" if close else "."
            problems.append(f"{name} is not a variable that adaptive_eager reads{hint}")
    return problems
