"""Parses the command line and runs one command.

A command is a module with `add(commands)`, which registers its parser with `set_defaults(execute=...)`. Exit status:
1 tool error, 2 usage; `run` exits as the script does. Data goes to stdout, everything else to stderr.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from adaptive_eager import AdaptiveEagerError, __version__

from . import bench, doctor, report, run
from .errors import ToolError

COMMANDS = (run, report, bench, doctor)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="adaptive-eager",
        description="See and check how eager ops are launched on the neuron device.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"adaptive-eager {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    execute: Callable[[argparse.Namespace], int] = args.execute
    try:
        status = execute(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of a pipe left: nothing more to say, and nothing to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (AdaptiveEagerError, ToolError) as error:
        print(f"adaptive-eager: {error}", file=sys.stderr)
        return 1
