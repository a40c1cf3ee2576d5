"""Runs a script, module or piece of code as `__main__` of this process, the way that `python` itself would.

sys.argv, sys.path[0] and the attributes of `__main__` are what the program expects, its exit status is returned, and
tracebacks show none of our frames.
"""

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import types
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec

from .errors import ToolError

INTERRUPTED = 130
_OURS = os.path.dirname(__file__)


@dataclass(frozen=True)
class Program:
    """What to run: `kind` is `script`, `module` or `code`; `target` the path, the module's name or the code."""

    kind: str
    target: str
    args: Sequence[str]

    @property
    def command(self) -> list[str]:
        flag = {"script": [], "module": ["-m"], "code": ["-c"]}[self.kind]
        return [*flag, self.target, *self.args]


def run(program: Program) -> int:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    try:
        prepare = {"script": _script, "module": _module, "code": _code}[program.kind]
        sys.argv = [program.target, *program.args]
        sys.modules["__main__"] = main
        code = prepare(program.target, main)
        exec(code, main.__dict__)
    except SystemExit as error:
        return _status(error.code)
    except KeyboardInterrupt as error:
        _print(error)
        return INTERRUPTED
    except ToolError:
        raise
    except BaseException as error:
        _print(error)
        return 1
    return 0


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _print(error: BaseException) -> None:
    """As the interpreter reports an uncaught exception, from the program's first frame on."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.stdout.flush()
    sys.excepthook(type(error), error, trace)


def _is_ours(filename: str) -> bool:
    return os.path.dirname(filename) == _OURS


def _set_first_path(entry: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = entry


def _script(path: str, main: types.ModuleType) -> types.CodeType:
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        return _folder(path, main)
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    main.__file__ = os.path.abspath(path)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
    main.__package__ = None
    main.__spec__ = None
    return compile(source, main.__file__, "exec", dont_inherit=True)


def _folder(path: str, main: types.ModuleType) -> types.CodeType:
    """A folder or a zip archive with a __main__.py."""
    importer = pkgutil.get_importer(path)
    spec = importer.find_spec("__main__", None) if importer is not None else None
    if spec is None:
        raise ToolError(f"{path} has no __main__.py")
    if getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, path)
    else:
        sys.path[0] = path
    return _from_spec(spec, main, package="")


def _module(name: str, main: types.ModuleType) -> types.CodeType:
    _set_first_path(os.getcwd())
    spec = _find(name)
    if spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__")
    code = _from_spec(spec, main, package=spec.parent or "")
    sys.argv[0] = main.__file__ or name
    return code


def _find(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ToolError(f"cannot find the module {name}: {error}") from error
    if spec is None:
        raise ToolError(f"no module named {name}")
    return spec


def _from_spec(spec: ModuleSpec, main: types.ModuleType, package: str) -> types.CodeType:
    code = spec.loader.get_code(spec.name) if spec.loader is not None and hasattr(spec.loader, "get_code") else None
    if code is None:
        raise ToolError(f"{spec.name} has no Python code to run")
    main.__file__ = spec.origin
    main.__loader__ = spec.loader
    main.__package__ = package
    main.__spec__ = spec
    main.__dict__["__cached__"] = spec.cached
    found: types.CodeType = code
    return found


def _code(text: str, main: types.ModuleType) -> types.CodeType:
    _set_first_path("")
    sys.argv[0] = "-c"
    main.__package__ = None
    main.__spec__ = None
    return compile(text, "<string>", "exec", dont_inherit=True)
