"""The compile service: a thread that takes loops from the native library as LLVM IR and gives addresses back.

The thread waits, and LLVM works, without the GIL. LLVM is imported once adaptive mode is on, and only here: later the
import would compete for the GIL with a program in its first steps.
Whatever goes wrong with a loop is told to the library, which goes on without it.
"""

import importlib
import os
import threading
import time
from contextlib import suppress
from typing import Any

from . import _logs, _native
from ._kernel_cache import KernelCache, from_environment, key_of
from ._llvm import Llvm
from ._warn import warn

WAIT_MS = 60_000
FORK_SECONDS = 5.0
STOP_SECONDS = 5.0

_log = _logs.logger("compile")


class Broken(Exception):
    """No loop can be compiled in this process; the message is one clause that says why."""


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


class Service:
    def __init__(self, ffi: Any, lib: Any, cache: KernelCache) -> None:
        self._ffi = ffi
        self._lib = lib
        self._cache = cache
        self._llvm: Llvm | None = None
        self._versions: dict[str, str] = {}
        self._broken = ""  # why no loop can be compiled any more
        self._busy = threading.Lock()  # held while LLVM is used, and by those who need it unused
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="adaptive_eager.compile", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            warn(f"loops are not compiled: {error}.")

    def stop(self) -> None:
        """Waits for the thread, which ends when the library shuts down: LLVM must not work while the process exits."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    # A child of fork() has a copy of LLVM's state but not the thread that was changing it. So a fork waits until LLVM
    # is not in use, and its locks and llvmlite's are free, which takes some milliseconds. (The locks of Python's own
    # modules are Python's matter, the queue of loops is the library's.)

    def before_fork(self) -> None:
        self._quiet = self._busy.acquire(timeout=FORK_SECONDS)

    def after_fork_in_parent(self) -> None:
        if self._quiet:
            self._busy.release()

    def after_fork_in_child(self) -> None:
        self._busy = threading.Lock()
        if not self._quiet:
            self._broken = "the process was forked while a loop was being compiled"
        if self._thread is not None and not self._stopping:
            self.start()

    def _run(self) -> None:
        job = self._ffi.new("ae_compile_job *")
        with self._busy, suppress(Exception):  # told once a loop is wanted
            importlib.import_module("llvmlite.binding")
        while not self._stopping:
            found = self._lib.ae_compile_next(WAIT_MS, job)
            if found < 0:
                break
            if found:
                with self._busy:
                    if not self._stopping:
                        self._serve(job)

    def _serve(self, job: Any) -> None:
        number = job.id
        image = None
        try:
            name, ir = self._take(job.name), self._take(job.ir)
            self._bring_up()
            began = time.perf_counter_ns()
            key = key_of(ir=ir, **self._versions)
            address, image = self._address(key, ir)
            spent = time.perf_counter_ns() - began
            self._lib.ae_compile_done(number, address, spent, image is None)
            _log.debug("%s: %.1f ms, %s", name, spent / 1e6, "from disk" if image is None else "compiled")
            if image is not None:
                self._cache.put(key, image)
        except Exception as error:
            why = str(error) if isinstance(error, Broken) else _one_line(error)
            self._lib.ae_compile_failed(number, why.encode())
            _log.info("loop %d is not compiled: %s", number, why)
            _log.debug("because of", exc_info=True)

    def _take(self, string: Any) -> str:
        """The text of a string that is ours to free."""
        try:
            return str(self._ffi.string(string).decode())
        finally:
            self._lib.ae_free(string)

    def _bring_up(self) -> None:
        if self._broken:
            raise Broken(self._broken)
        if self._llvm is not None:
            return
        import torch

        import adaptive_eager

        began = time.perf_counter_ns()
        try:
            self._llvm = llvm = Llvm()
        except Exception as error:
            what = "llvmlite is missing" if isinstance(error, ImportError) else "LLVM cannot be used"
            self._broken = f"{what}: {' '.join(str(error).split())}"
            warn(f"loops are not compiled, ops run one by one instead: {self._broken}.")
            raise Broken(self._broken) from error
        self._versions = {
            "llvm": llvm.version,
            "cpu": llvm.cpu,
            "features": llvm.features,
            "torch": str(torch.__version__),
            "package": adaptive_eager.__version__,
        }
        _log.info("%s for %s, ready in %.0f ms", llvm.version, llvm.cpu, (time.perf_counter_ns() - began) / 1e6)

    def _address(self, key: str, ir: str) -> tuple[int, bytes | None]:
        """The loop's address, and its object image if that is new."""
        assert self._llvm is not None
        image = self._cache.get(key)
        if image is not None:
            try:
                return self._llvm.load(image, self._resolve), None
            except Exception:
                _log.debug("%s does not load from disk", key, exc_info=True)
                self._cache.discard(key)
        image = self._llvm.compile(ir)
        return self._llvm.load(image, self._resolve), image

    def _resolve(self, name: str) -> int:
        return int(self._lib.ae_routine_address(name.encode()))


_lock = threading.Lock()
_cache: KernelCache | None = None
_service: Service | None = None


def configure(problems: list[str]) -> None:
    """Reads the environment; bad values go to `problems`."""
    global _cache
    _cache = from_environment(problems)


def start() -> None:
    """Starts the service unless it runs."""
    global _service
    with _lock:
        if _service is not None:
            return
        _service = service = Service(_native.ffi, _native.lib, _cache or from_environment([]))
        service.start()
        os.register_at_fork(
            before=service.before_fork,
            after_in_parent=service.after_fork_in_parent,
            after_in_child=service.after_fork_in_child,
        )


def stop() -> None:
    """At exit, once the library was shut down."""
    if _service is not None:
        _service.stop()
