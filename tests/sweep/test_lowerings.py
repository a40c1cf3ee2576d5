"""Every op of the table of lowerings and every dtype, on all sizes, with 1 and 2 threads, fused."""

import pytest
import torch
from lowering_cases import DTYPES, SIZES, info_calls, own_calls, problems, rows, shown, supports

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", rows())
def test_lowering(name: str, dtype: torch.dtype, threads: int) -> None:
    if dtype not in rows()[name] and not supports(name, dtype):
        pytest.skip("CPU has no such kernel")
    torch.set_num_threads(threads)
    try:
        sizes = SIZES if threads == 1 else tuple(size for size in SIZES if size > 32000)
        calls = [*own_calls(name, dtype, sizes), *(info_calls(name, dtype, 40) if threads == 1 else ())]
        found, _fused = problems(calls)
    finally:
        torch.set_num_threads(1)
    assert not found, shown(found)
