"""Units that run some rows at a time: which do, which may not, and that nobody sees it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fusion import check, compare, forced, forget, launched, settle

from adaptive_eager import config

Tensors = list[torch.Tensor]


@pytest.fixture(autouse=True, params=[1, 2], ids=["1 thread", "2 threads"])
def tiling(request: pytest.FixtureRequest, reset: None) -> Iterator[None]:
    """Every result is passed on block by block, however small, and blocks are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    with forced(tile_from_bytes=0, tile_bytes=4096), torch.no_grad():
        forget()
        yield
    torch.set_num_threads(before)


def randn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], Tensors]:
    return lambda: [torch.randn(shape, dtype=dtype) for shape in shapes]


def tiles(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [tile for region in found for tile in region["tiles"]]


def names(found: list[dict[str, Any]]) -> list[list[str]]:
    """Of the units of each tiling."""
    return [
        [unit["name"].removeprefix("aten::") for unit in region["units"][tile["first"] : tile["first"] + tile["units"]]]
        for region in found
        for tile in region["tiles"]
    ]


S = (24, 6, 64)

ROWS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, y: torch.softmax(x * y, -1) * 2,
    "log_softmax": lambda x, y: torch.log_softmax(x * y, -1) - y,
    "softmax_backward": lambda x, y: torch._softmax_backward_data(x * y, y, -1, x.dtype) + x,
    "log_softmax_backward": lambda x, y: torch._log_softmax_backward_data(x * y, y, -1, x.dtype) + x,
    "layer_norm": lambda x, y: F.layer_norm(x + y, (64,), y[0, 0], y[1, 1]) * y,
    "layer_norm_2d": lambda x, y: F.layer_norm(x + y, (6, 64)) * y,
    "sum": lambda x, y: ((x - y).square().sum(-1) + 1).sqrt(),
    "sum_keepdim": lambda x, y: x / (x * y).sum(-1, keepdim=True),
    "sum_two": lambda x, y: (x * y).sum((1, 2)) * 2,
    "mean": lambda x, y: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * y,
    "amax": lambda x, y: ((x * y) - (x * y).amax(-1, keepdim=True)).exp().sum(-1, keepdim=True).log(),
    "amin": lambda x, y: (x * y).amin(-1) + 1,
    "bmm": lambda x, y: torch.softmax(torch.bmm(x * 2, y.transpose(1, 2)) * 0.125, -1) + 1,
    "sum_of_all": lambda x, y: (x * y).sum(),
    "mean_of_all": lambda x, y: (x - y).abs().mean(),
    "two_sums_of_all": lambda x, y: ((x * y).sum(), (x * y).mean()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("program", ROWS.values(), ids=ROWS)
def test_rows_come_out_as_on_the_cpu(program: Callable[..., Any], dtype: torch.dtype) -> None:
    config.tile_bytes = 16384
    found = check(program, randn(S, S, dtype=dtype))
    if dtype == torch.float32:
        assert [tile["stage"] for tile in tiles(found)] == ["used"]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmax_backward", "log_softmax_backward"])
def test_rows_with_a_scalar_tail_stay_whole_on_several_threads(name: str) -> None:
    """ATen's compiler contracted the tail differently where rows are shared among threads and where they are not."""
    found = check(ROWS[name], randn((144, 50), (144, 50)))
    assert len(tiles(found)) == (torch.get_num_threads() == 1)


@pytest.mark.parametrize("size", [64, 1000, 4097, 32768 + 5, 100_003, 1 << 19])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sum_of_all_is_added_up_in_atens_order(size: int, dtype: torch.dtype) -> None:
    config.tile_bytes = 65536
    found = check(lambda x: ((x * 3).sum(), (x * 3).mean()), lambda: [torch.randn(size, dtype=dtype) * 1000], rounds=3)
    if size < 32768 or size % torch.get_num_threads() == 0:
        assert len(tiles(found)) == 1


def test_sum_of_all_of_special_values() -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), 1e-45, 3e38, -1.0])

    def inputs() -> Tensors:
        return [special[torch.randint(0, 6, (5000,))], -torch.zeros(5000)]

    check(lambda x, z: ((x * 1).sum(), (z * 1).sum(), (z * 1).mean()), inputs)


def test_linear_and_what_follows_run_by_blocks() -> None:
    config.tile_bytes = 1 << 20
    inputs = randn((12 * 192, 16), (64, 16), (64,), (16, 64))
    found = check(lambda x, w, b, v: F.linear(F.relu(F.linear(x, w, b)) * 2, v), inputs)
    assert names(found) == [["addmm", "relu-mul", "mm"]]


def test_product_whose_bits_depend_on_its_rows_runs_as_a_whole() -> None:
    """Whatever the rows of a block turn out to be, the results are those of one product."""
    for rows in (257, 385, 515, 1031):
        config.tile_bytes = 1 << 18
        check(lambda x, w: F.relu(x @ w) * 2, randn((rows, 96), (96, 48)), rounds=3)


def test_product_with_other_numbers_than_one_runs_as_a_whole() -> None:
    """alpha was 0 when the blocks were compared: whatever their rows, they would have been alike."""
    config.tile_bytes = 1 << 20
    b, w = torch.randn(16), torch.randn(64, 16)
    for number in range(8):
        alpha = 0.5 if number > 4 else 0.0
        x = torch.randn(3001, 64)
        result = torch.relu(torch.addmm(b.to("neuron"), x.to("neuron") * 2, w.to("neuron"), alpha=alpha)) * 2
        compare(result, torch.relu(torch.addmm(b, x * 2, w, alpha=alpha)) * 2, f"call {number}")
        settle()


def test_blocks_of_a_product_are_as_even_as_can_be() -> None:
    config.tile_bytes = 1 << 19
    found = check(lambda x, w: F.relu((x * 2) @ w) * 2, randn((3 * 1024 + 1, 64), (64, 32)))
    (tile,) = tiles(found)
    share = -(-tile["rows"] // torch.get_num_threads())
    assert tile["block"] >= 128
    assert share % tile["block"] == 0 or share % tile["block"] >= 128


def test_threads_that_change_while_loops_compile() -> None:
    """A plan is made for a number of threads: a sum of all elements has another order with others."""
    before = torch.get_num_threads()
    for factor in range(2, 6):
        for threads in (1, 2, 1, 1):
            torch.set_num_threads(threads)
            x = torch.randn(200_000)
            compare((x.to("neuron") * factor).sum(), (x * factor).sum(), f"times {factor}, {threads} threads")
            settle()
    torch.set_num_threads(before)


def test_matrix_wise_dependences_keep_units_apart() -> None:
    """A row of the second needs all rows of the first."""
    for program in (
        lambda x: torch.softmax(torch.softmax(x * 2, -1).t() * 2, -1),
        lambda x: (x * 2).softmax(0) * 3,
        lambda x: (x * 2).sum(0) * 3,
        lambda x: (x * 2).softmax(-1).flip(0) * 2,
        lambda x: (x * 2) @ (x * 2),
    ):
        check(program, randn((40, 40)))


def test_shifted_rows_are_not_mistaken_for_each_other() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).softmax(-1)
        return (y[1:] * y[:-1]).softmax(-1) + 1

    check(program, randn((64, 33)))


def test_written_inputs_are_written_once() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y.copy_(torch.softmax(x, -1))
        x.add_(y)
        return x.sum(-1)

    check(program, randn((48, 20), (48, 20)))


def test_views_and_slices_of_larger_tensors() -> None:
    def program(x: torch.Tensor) -> Tensors:
        left, right = x[:, :24], x[:, 24:]
        return [torch.softmax(left * right, -1) * left, (left - right).sum(-1) + right[:, 0]]

    check(program, randn((30, 48)))


def test_intermediate_that_is_kept_is_complete() -> None:
    def program(x: torch.Tensor) -> Tensors:
        scores = x * 0.125
        weights = torch.softmax(scores, -1)
        return [scores, weights, weights * 2]

    found = check(program, randn((50, 64)))
    assert len(tiles(found)) == 1


def test_vector_tails_stay_where_aten_has_them() -> None:
    """sigmoid and silu round differently in the scalar tail of a tensor: no block may have one of its own."""
    config.tile_bytes = 1000
    check(lambda x: (torch.sigmoid(x) * F.silu(x)).sum(-1) * 2, randn((51, 13)))
    check(lambda x: torch.sigmoid(x * 2).sum(), randn((1237,)))


def test_first_blocks_are_compared_and_timed() -> None:
    config.compare_fused = 1
    program, slower = ROWS["softmax"], "not quicker than one unit after the other"
    for _ in range(12):
        x, y = torch.randn(S), torch.randn(S)
        with launched() as found:
            result = program(x.to("neuron"), y.to("neuron"))
        compare(result, program(x, y), "result")
        settle()
    (tile,) = tiles(found)
    assert (tile["stage"], tile["why"]) in (("used", ""), ("refused", slower))


def test_no_tiles_without_memory_for_them() -> None:
    config.tile_bytes = 0
    assert tiles(check(lambda x: torch.softmax(x * 5, -1) * 7, randn(S))) == []


def test_tiles_need_no_more_memory_than_their_units() -> None:
    def program(x: torch.Tensor, last: str) -> torch.Tensor:
        for _ in range(4):
            x = torch.softmax(x * 2, -1) - 1
            x = (x / x.square().sum(-1, keepdim=True)).exp()
        return getattr(x, last)(-1)

    peaks = []
    for tile_bytes, last in ((0, "amax"), (65536, "amin")):
        config.tile_bytes = tile_bytes
        x = torch.randn(1024, 256).to("neuron")
        for _ in range(4):
            kept = program(x, last)
            settle()
        torch.neuron.empty_cache()
        torch.neuron.reset_peak_memory_stats()
        before = torch.neuron.memory_allocated()
        with launched() as found:
            kept = program(x, last)
        settle()
        peaks.append(torch.neuron.max_memory_allocated() - before)
        assert bool(tiles(found)) == (tile_bytes > 0)
        del kept
    without, with_tiles = peaks
    assert with_tiles <= without + 4 * 65536
