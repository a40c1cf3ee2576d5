"""`adaptive-eager report`: reads what `run -o` wrote."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from .headline import print_report
from .recording import SCHEMA_VERSION, read


def add(commands: Any) -> None:
    parser = commands.add_parser("report", help="show a recording that `run -o` wrote", allow_abbrev=False)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("-n", dest="limit", type=int, default=20, metavar="ROWS", help="most rows of a table (20)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    recording = read(args.file)
    if args.format == "json":
        json.dump({"schema_version": SCHEMA_VERSION, **asdict(recording)}, sys.stdout, indent=1)
        print()
    else:
        print_report(recording, Console(), args.limit)
    return 0
