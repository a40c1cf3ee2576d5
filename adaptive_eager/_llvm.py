"""LLVM IR text to machine code in this process, by llvmlite. One thread uses it; see _compile.py.

Measured on 35 loops of some 8 ops (9 KB of IR, 512-bit vectors, LLVM 22), medians: parse 0.4, verify 0.1, code
generation 5.3, load 0.3 ms, 6.1 in all. The middle end does not pay, as the IR is in SSA form and vectorised: pipelines
O1 and O2 double the time. Neither does the loop strength reduction of the code generator: 3.5 ms, and the loops run as
fast without. Loading takes 0.95 ms and 55 KB of memory a loop with MCJIT, 0.13 ms and 41 KB with ORC and JITLink.

llvmlite's calls release the GIL. Between two of them it is held for 7 us on average and 20 us at most (the key of a
long IR is made); once, while Python imports llvmlite, for some ms at a time.
"""

import ctypes
import importlib.util
import itertools
import os
import platform
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENTRY = "kernel"
LLVM = 22  # is known to have the option that is set below; LLVM ends the process over an unknown one


def _open_library() -> None:
    """Opens llvmlite's large library first: ctypes' own dlopen would keep the GIL meanwhile, a call of it does not."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is not None and spec.origin is not None:
        dlopen = ctypes.CDLL(None).dlopen
        dlopen.restype = ctypes.c_void_p
        dlopen(os.fsencode(Path(spec.origin).with_name("binding") / "libllvmlite.so"), os.RTLD_NOW | os.RTLD_LOCAL)


class Llvm:
    def __init__(self) -> None:
        _open_library()
        import llvmlite
        from llvmlite import binding

        self._binding = binding
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self.version = f"llvmlite {llvmlite.__version__} LLVM {'.'.join(map(str, binding.llvm_version_info))}"
        self.cpu = str(binding.get_host_cpu_name())
        self.features = str(binding.get_host_cpu_features().flatten())
        if platform.machine() == "x86_64":
            self.features += ",-prefer-256-bit"  # the IR says how wide its vectors are
        self._machine = self._make_machine()
        # JITLink reaches routines that are more than 2 GB away through stubs of its own.
        self._jit = binding.create_lljit_compiler(self._make_machine(), use_jit_link=True, suppress_errors=True)
        self._loaded: list[object] = []  # code lives as long as these
        self._names = map("kernel{}".format, itertools.count())

    def _make_machine(self) -> Any:
        target = self._binding.Target.from_triple(self._binding.get_process_triple())
        return target.create_target_machine(self.cpu, self.features, opt=2, reloc="pic", codemodel="small", jit=True)

    def compile(self, ir: str) -> bytes:
        """The object image of a module, in a context of its own: types and constants would pile up in a global one."""
        with self._binding.parse_assembly(ir, self._binding.create_context()) as module:
            module.verify()
            with self._without_strength_reduction():
                return bytes(self._machine.emit_object(module))

    @contextmanager
    def _without_strength_reduction(self) -> Iterator[None]:
        """The loops' addresses are simple. LLVM's options are the process's: whoever else compiles keeps theirs."""
        if self._binding.llvm_version_info[0] != LLVM:
            yield
            return
        self._binding.set_option("", "-disable-lsr=1")
        try:
            yield
        finally:
            self._binding.set_option("", "-disable-lsr=0")

    def load(self, image: bytes, resolve: Callable[[str], int]) -> int:
        """The address of the image's entry. What it calls is where `resolve` says; 0 means that it is nowhere."""
        library = self._binding.JITLibraryBuilder().add_object_img(image).export_symbol(ENTRY)
        for name in undefined_symbols(image):
            address = resolve(name)
            if not address:
                raise LookupError(f"there is no routine {name}")
            library.import_symbol(name, address)
        loaded = library.link(self._jit, next(self._names))
        self._loaded.append(loaded)
        return int(loaded[ENTRY])


def undefined_symbols(image: bytes) -> Iterator[str]:
    """What an ELF object wants from elsewhere: more than the IR declares where LLVM calls a library function itself."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("the object image is not little-endian 64-bit ELF")
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    # Of each section: type, offset, size, and the section that it refers to.
    sections = [struct.unpack_from("<4xI16xQQI", image, table + i * size) for i in range(count)]
    for kind, offset, length, link in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][1]
        for name, section in struct.iter_unpack("<I2xH16x", image[offset : offset + length]):
            if section == 0 and name:
                start = names + name
                yield image[start : image.index(0, start)].decode()
