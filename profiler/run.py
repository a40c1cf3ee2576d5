"""`adaptive-eager run`: runs a program unchanged, then says or saves what became of its launches."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from adaptive_eager import AdaptiveEagerError

from . import recording, script
from .errors import ToolError
from .headline import print_report


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a Python program and report its launches",
        usage="%(prog)s [options] (SCRIPT | -m MODULE | -c CODE) [args ...]",
        allow_abbrev=False,
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="save a recording (JSON) for `adaptive-eager report`")
    parser.add_argument("-f", dest="force", action="store_true", help="overwrite FILE")
    parser.add_argument("-q", dest="quiet", action="store_true", help="say nothing but what was asked for")
    parser.add_argument("--mode", choices=("eager", "adaptive"), help="set NEURON_EAGER for the program")
    parser.add_argument("--report", action="store_true", help="print the report on stderr when the program ends")
    rest = argparse.REMAINDER  # everything after the program is the program's
    parser.add_argument("-m", dest="module", nargs=rest, metavar="MODULE", help="run a module, as python -m does")
    parser.add_argument("-c", dest="code", nargs=rest, metavar="CODE", help="run CODE, as python -c does")
    parser.add_argument("script", nargs=rest, metavar="SCRIPT", help="run a script, folder or zip archive")
    parser.set_defaults(execute=execute, parser=parser)


def _program(args: argparse.Namespace) -> script.Program | None:
    for kind in ("module", "code", "script"):
        words = list(getattr(args, kind) or ())
        if kind == "script" and words[:1] == ["--"]:
            del words[0]
        if words:
            return script.Program(kind, words[0], words[1:])
    return None


def execute(args: argparse.Namespace) -> int:
    program = _program(args)
    if program is None:
        parser: argparse.ArgumentParser = args.parser
        parser.error("a SCRIPT, -m MODULE or -c CODE is needed")
    output = Path(args.output).absolute() if args.output else None
    if output:
        recording.refuse_overwrite(output, args.force)
    if args.mode:
        os.environ["NEURON_EAGER"] = args.mode
    status = script.run(program)
    if output or args.report:
        try:
            _finish(args, program, output)
        except (AdaptiveEagerError, ToolError) as error:
            print(f"adaptive-eager: {error}", file=sys.stderr)
            return status or 1
    return status


def _finish(args: argparse.Namespace, program: script.Program, output: Path | None) -> None:
    if "torch" not in sys.modules:
        raise ToolError("the program did not import torch, so there is nothing to report")
    console = Console(stderr=True)
    taken = recording.take(program.command)
    if output:
        recording.write(taken, output, args.force)
        if not args.quiet:
            console.print(f"wrote {output}", highlight=False, soft_wrap=True)
    if args.report:
        print_report(taken, console)
