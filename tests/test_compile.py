"""The compile service, against a library that is played by Python: what goes in, what comes out, what may go wrong."""

import ctypes
import os
import queue
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI

from adaptive_eager import _compile, _kernel_cache
from adaptive_eager._compile import Service
from adaptive_eager._kernel_cache import KernelCache
from adaptive_eager._llvm import Llvm

FLOATS = ctypes.c_float * 16
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

# operands[0][0:16] = formula(operands[1][0:16], operands[2][0:16])
TEMPLATE = """
declare float @routine(float)
define void @kernel(ptr %operands, ptr %strides, i64 %inner, i64 %outer) nounwind "prefer-vector-width"="512" {{
  %pb = getelementptr ptr, ptr %operands, i64 1
  %pc = getelementptr ptr, ptr %operands, i64 2
  %a = load ptr, ptr %operands
  %b = load ptr, ptr %pb
  %c = load ptr, ptr %pc
  %x = load <16 x float>, ptr %b, align 4
  %y = load <16 x float>, ptr %c, align 4
{formula}
  store <16 x float> %r, ptr %a, align 4
  ret void
}}
"""
ADD = TEMPLATE.format(formula="  %r = fadd <16 x float> %x, %y")
BROKEN = TEMPLATE.format(formula="  %r = fadd <16 x float> %x, %nowhere")
CALL = TEMPLATE.format(
    formula="""
  %e = extractelement <16 x float> %x, i32 3
  %f = call float @routine(float %e)
  %r = insertelement <16 x float> %y, float %f, i32 3
"""
)


class Library:
    """What the service asks of the native library."""

    def __init__(self) -> None:
        self.ffi = FFI()
        self.ffi.cdef("typedef struct { uint64_t id; char* name; char* ir; } ae_compile_job;")
        self.jobs: queue.Queue[tuple[int, str] | None] = queue.Queue()
        self.answers: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.routines: dict[str, int] = {}
        self.strings: set[Any] = set()
        self.service: Any = None

    def _string(self, text: str) -> Any:
        string = self.ffi.new("char[]", text.encode())
        self.strings.add(string)
        return string

    def ae_compile_next(self, timeout_ms: int, out: Any) -> int:
        try:
            job = self.jobs.get(timeout=timeout_ms / 1000)
        except queue.Empty:
            return 0
        if job is None:
            return -1
        out.id, out.name, out.ir = job[0], self._string(f"loop {job[0]}"), self._string(job[1])
        return 1

    def ae_free(self, string: Any) -> None:
        self.strings.remove(string)

    def ae_compile_done(self, number: int, address: int, ns: int, cached: int) -> int:
        self.answers.put((number, address, ns, cached))
        return 0

    def ae_compile_failed(self, number: int, why: bytes) -> int:
        self.answers.put((number, why.decode()))
        return 0

    def ae_routine_address(self, name: bytes) -> int:
        return self.routines.get(name.decode(), 0)

    def compile(self, number: int, ir: str) -> tuple[Any, ...]:
        self.jobs.put((number, ir))
        return self.answers.get(timeout=60)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[], Library]]:
    """serve(): the library of a service that runs until the test ends, each time a new one on the same directory."""
    started: list[Library] = []

    def start() -> Library:
        lib = Library()
        lib.service = Service(lib.ffi, lib, KernelCache(tmp_path, 1 << 30))
        lib.service.start()
        started.append(lib)
        return lib

    yield start
    for lib in started:
        lib.jobs.put(None)
        lib.service.stop()
        assert not lib.strings


def run(address: int, b: list[float], c: list[float]) -> list[float]:
    result = FLOATS()
    arrays = (result, FLOATS(*b), FLOATS(*c))
    operands = (ctypes.c_void_p * 3)(*map(ctypes.addressof, arrays))
    KERNEL(address)(ctypes.addressof(operands), None, 16, 1)
    return list(result)


B = [float(i) for i in range(16)]
C = [0.5 * i for i in range(16)]
SUM = [1.5 * i for i in range(16)]


def test_compiled_loop_computes(serve) -> None:
    number, address, ns, cached = serve().compile(7, ADD)
    assert (number, cached) == (7, False) and ns > 0
    assert run(address, B, C) == SUM


def test_second_service_finds_the_loop_on_disk(serve, tmp_path: Path) -> None:
    assert serve().compile(1, ADD)[3] is False
    wait_for(KernelCache(tmp_path, 1).entries)
    other = serve()
    number, address, _, cached = other.compile(2, ADD)
    assert (number, cached) == (2, True)
    assert run(address, B, C) == SUM
    assert other.compile(3, CALL.replace("@routine", "@other"))[1].startswith("LookupError")


def test_loaded_loops_stay_when_others_come(serve) -> None:
    lib = serve()
    addresses = [lib.compile(i, ADD.replace("%r", f"%r{i}"))[1] for i in range(20)]
    assert len(set(addresses)) == 20
    assert all(run(address, B, C) == SUM for address in addresses)


def test_loop_calls_a_routine_of_the_library(serve, tmp_path: Path) -> None:
    double = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(lambda x: 2 * x + 1)
    for cached in (False, True):
        lib = serve()
        lib.routines["routine"] = ctypes.cast(double, ctypes.c_void_p).value or 0
        answer = lib.compile(1, CALL)
        assert answer[3] is cached
        assert run(answer[1], B, C) == [*C[:3], 7.0, *C[4:]]
        wait_for(KernelCache(tmp_path, 1).entries)


def test_product_and_sum_are_not_contracted(serve) -> None:
    formula = "  %p = fmul <16 x float> %x, %x\n  %r = fadd <16 x float> %p, %y"
    address = serve().compile(1, TEMPLATE.format(formula=formula))[1]
    one = struct.unpack("f", struct.pack("f", 1 + 2**-12))[0]
    assert run(address, [one] * 16, [-1.0] * 16) == [2**-11] * 16  # with one rounding, 2**-24 more


def test_vectors_are_as_wide_as_the_ir_says() -> None:
    llvm = Llvm()
    if "+avx512f" not in llvm.features.split(","):
        pytest.skip("no AVX-512")
    with llvm._binding.parse_assembly(ADD.replace('"prefer-vector-width"="512"', "")) as module:
        assert "%zmm" in llvm._machine.emit_assembly(module)


@pytest.mark.parametrize(
    ("ir", "reason"),
    [
        (BROKEN, "use of undefined value '%nowhere'"),
        ("this is no IR", "LLVM IR parsing error"),
        (ADD.replace("@kernel", "@other"), "kernel"),
        (CALL, "there is no routine routine"),
        ("", "kernel"),
    ],
    ids=["undefined", "nonsense", "unnamed", "routine", "empty"],
)
def test_loop_that_does_not_compile_fails_in_one_line_and_the_next_works(serve, ir: str, reason: str) -> None:
    lib = serve()
    number, why = lib.compile(1, ir)
    assert number == 1 and reason in why and "\n" not in why
    assert run(lib.compile(2, ADD)[1], B, C) == SUM


def test_damaged_loop_on_disk_is_compiled_again(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernel_cache, "_warned", set())
    monkeypatch.setattr(_kernel_cache, "warn", lambda sentence: None)
    serve().compile(1, ADD)
    (entry,) = wait_for(lambda: KernelCache(tmp_path, 1).entries())
    entry.path.write_bytes(entry.path.read_bytes()[:-1])
    _, address, _, cached = serve().compile(2, ADD)
    assert cached is False and run(address, B, C) == SUM


def test_loop_on_disk_that_does_not_load_is_compiled_again(serve, tmp_path: Path) -> None:
    serve().compile(1, ADD)
    (entry,) = wait_for(lambda: KernelCache(tmp_path, 1).entries())
    KernelCache(tmp_path, 1 << 30).put(entry.key, b"a good entry that is no object image")
    _, address, _, cached = serve().compile(2, ADD)
    assert cached is False and run(address, B, C) == SUM


def wait_for(condition: Callable[[], Any]) -> Any:
    """The service writes an entry after it answered."""
    pause = threading.Event()
    for _ in range(1000):
        if found := condition():
            return found
        pause.wait(0.01)
    raise TimeoutError


def test_missing_llvmlite_fails_every_loop_with_the_reason(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences: list[str] = []
    monkeypatch.setattr(_compile, "warn", sentences.append)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    lib = serve()
    assert [lib.compile(i, ADD)[1].startswith("llvmlite is missing: ") for i in range(3)] == [True] * 3
    assert len(sentences) == 1 and "llvmlite is missing" in sentences[0]


def test_llvm_is_loaded_beside_the_program_once_the_mode_is_on(python) -> None:
    program = """
import sys, time, torch, adaptive_eager
print("llvmlite" in sys.modules)
adaptive_eager.set_mode("adaptive")
adaptive_eager.set_mode("adaptive")
import threading
print([thread.name for thread in threading.enumerate()].count("adaptive_eager.compile"))
for _ in range(3000):
    if "llvmlite.binding" in sys.modules:
        break
    time.sleep(0.01)
print("llvmlite.binding" in sys.modules, "platformdirs" in sys.modules)
"""
    done = python("-c", program)
    assert done.stdout.split() == ["False", "1", "True", "False"], done.stderr


def test_service_runs_from_the_start_in_adaptive_mode_only(python) -> None:
    program = "import torch, threading; print(len(threading.enumerate()))"
    assert python("-c", program).stdout.strip() == "1"
    done = python("-c", program, NEURON_EAGER="adaptive")
    assert (done.stdout.strip(), done.stderr) == ("2", "")


def test_thread_ends_when_the_library_shuts_down(serve) -> None:
    lib = serve()
    lib.compile(1, ADD)
    lib.jobs.put(None)
    lib.service._thread.join(60)
    assert not lib.service._thread.is_alive()


FORK = """
import os, sys
sys.path.insert(0, sys.argv[1])
import test_compile as t
from adaptive_eager import _compile, _native
from adaptive_eager._kernel_cache import KernelCache

lib = t.Library()
_native.ffi, _native.lib = lib.ffi, lib
_compile._cache = KernelCache(None, 0)
_compile.start()
first = lib.compile(0, t.ADD)[1]
for turn in range(10):
    for i in range(4):  # work is going on at the fork
        lib.jobs.put((i, t.ADD))
    child = os.fork()
    if child == 0:
        assert t.run(first, t.B, t.C) == t.SUM
        t.Service(lib.ffi, lib, KernelCache(None, 0))._bring_up()  # LLVM's and llvmlite's locks are free
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
lib.jobs.put(None)
print("good")
"""


def test_service_survives_forks(python) -> None:
    done = python("-c", FORK, os.path.dirname(__file__))
    assert done.stdout.strip() == "good", done.stderr


def test_forked_child_compiles(serve) -> None:
    lib = serve()
    assert run(lib.compile(1, ADD)[1], B, C) == SUM
    lib.service.before_fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            lib.jobs, lib.answers = queue.Queue(), queue.Queue()
            lib.service.after_fork_in_child()
            address = lib.compile(2, ADD.replace("%r", "%s"))[1]
            code = int(run(address, B, C) != SUM)
        finally:
            os._exit(code)
    lib.service.after_fork_in_parent()
    assert os.waitpid(child, 0)[1] == 0
    assert run(lib.compile(3, ADD.replace("%r", "%t"))[1], B, C) == SUM
