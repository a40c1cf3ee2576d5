"""The native library, bound with cffi in ABI mode from the installed copy of its own header.

`ffi` and `lib` exist once the library is open; asking for them earlier loads the device, and raises why it could not.
"""

from pathlib import Path
from typing import Any

from ._errors import AdaptiveEagerError

ABI_VERSION = 1


def find(name: str) -> Path:
    """A file that was installed beside this package's sources (an editable install has two such folders)."""
    import adaptive_eager

    for folder in adaptive_eager.__path__:
        if (path := Path(folder, name)).is_file():
            return path
    raise FileNotFoundError(f"{name} is missing from {', '.join(adaptive_eager.__path__)}")


def library_path() -> Path:
    return find("libadaptive_eager.so")


def open_library() -> None:
    from cffi import FFI

    header = find("adaptive_eager.h").read_text()
    declarations = header.split("/* cffi: begin */")[1].split("/* cffi: end */")[0]
    bound = FFI()
    bound.cdef(declarations)
    library = bound.dlopen(str(library_path()), bound.RTLD_NOW | bound.RTLD_LOCAL)
    globals().update(ffi=bound, lib=library)


def forget_library() -> None:
    """After a refused load, using the library raises again."""
    for name in ("ffi", "lib"):
        globals().pop(name, None)


def __getattr__(name: str) -> Any:
    if name not in ("ffi", "lib"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _load

    _load.load()
    if _load.failure is not None:
        raise AdaptiveEagerError(f"the neuron device is not available: {_load.failure}")
    return globals()[name]


def check(rc: int) -> None:
    """Turns the library's -1 into an exception with its message."""
    if rc != 0:
        raise AdaptiveEagerError(text(globals()["lib"].ae_last_error()))


def text(pointer: Any) -> str:
    decoded: str = globals()["ffi"].string(pointer).decode()
    return decoded


def take_text(pointer: Any) -> str:
    """The text of a string that is ours to free."""
    lib = globals()["lib"]
    if not pointer:
        raise AdaptiveEagerError(text(lib.ae_last_error()))
    try:
        return text(pointer)
    finally:
        lib.ae_free(pointer)


def rows(kind: str, count: Any, describe: Any) -> list[Any]:
    """A native table: `count()` structs of type `kind`, filled by `describe(index, out)`."""
    ffi = globals()["ffi"]
    out = []
    for index in range(count()):
        row = ffi.new(f"{kind} *")
        check(describe(index, row))
        out.append(row)
    return out
