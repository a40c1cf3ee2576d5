"""Machine code for other processors than this one: as far as it can be had here, by compiling for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaptive_eager._lowerings import lowerings

AARCH64 = 0xB7  # e_machine of ELF for the Arm 64-bit architecture

# Fuses every row that is the same on every processor as on one without vector extensions, and compiles each loop once
# more for aarch64 with NEON.
PROGRAM = """
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from llvmlite import binding
from lowering_cases import FEW_SIZES, own_calls, problems, shown, supports
from adaptive_eager._llvm import Llvm, undefined_symbols

modules = set()
compile_here = Llvm.compile

def compile(self, ir):
    modules.add(ir)
    return compile_here(self, ir)

Llvm.compile = compile
calls = []
for name in sys.argv[2:]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
        if supports(name, dtype):
            calls += own_calls(name, dtype, FEW_SIZES[-2:], False)
found, fused = problems(calls)

binding.initialize_all_targets()
binding.initialize_all_asmprinters()
triple = "aarch64-unknown-linux-gnu"
target = binding.Target.from_triple(triple)
neon = target.create_target_machine("generic", "+neon", opt=2, reloc="pic", codemodel="small")
machines, wanted = set(), set()
for ir in modules:
    with binding.parse_assembly(ir, binding.create_context()) as module:
        module.triple = triple
        module.verify()
        image = neon.emit_object(module)
    machines.add(struct.unpack_from("<H", image, 18)[0])
    wanted.update(undefined_symbols(image))
print(json.dumps({"level": torch.backends.cpu.get_cpu_capability(), "found": shown(found), "fused": sorted(fused),
                  "modules": len(modules), "machines": sorted(machines), "wanted": sorted(wanted)}))
"""


def test_rows_for_every_processor_are_compiled_for_arm(tmp_path: Path, python: Callable[..., Any]) -> None:
    exact = [row.op for row in lowerings() if row.exact and not row.op.startswith("_")]
    result = python(
        "-c", PROGRAM, Path(__file__).parent, *exact,
        ADAPTIVE_EAGER_CACHE_DIR=str(tmp_path), ATEN_CPU_CAPABILITY="default", NEURON_EAGER="adaptive",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    got = json.loads(result.stdout.splitlines()[-1])
    assert got["level"] in ("DEFAULT", "NO AVX")
    assert not got["found"]
    # Composed of other ops, or fused only in calls that are not made here.
    composed = {"full_like", "ones_like", "zeros_like", "isinf", "clone"}
    assert set(exact) - set(got["fused"]) <= composed
    assert got["machines"] == [AARCH64]
    assert got["modules"] > len(exact)
    assert got["wanted"] == [], "the processor does these itself"


def test_no_row_for_every_processor_asks_where_a_vector_ends_or_calls_a_routine() -> None:
    exact = [row for row in lowerings(everything=True) if row.exact]
    assert {"add", "mul", "where", "copy"} <= {row.op for row in exact}
    assert [row.op for row in exact if row.cut or row.array] == []
