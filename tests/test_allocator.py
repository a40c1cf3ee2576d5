"""The caching allocator and its figures."""

import gc
import itertools
import threading

import pytest
import torch

import adaptive_eager
from adaptive_eager import _native

MIB = 1 << 20


def block(nbytes: int) -> torch.Tensor:
    """A tensor that has its memory."""
    x = torch.empty(nbytes, dtype=torch.uint8, device="neuron")
    x.data_ptr()
    return x


@pytest.fixture(autouse=True)
def nothing_left_over() -> None:
    """Tensors of other tests that only the garbage collector frees must not be freed while one here counts bytes."""
    gc.collect()
    torch.neuron.synchronize()


@pytest.fixture
def no_limit():
    yield
    torch.neuron.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("nbytes", [1, 511, 512, 513, 4096, 4097, 100_000, MIB, 5 * MIB])
def test_blocks_are_aligned_usable_and_little_larger_than_asked_for(nbytes: int) -> None:
    before = torch.neuron.memory_allocated()
    x = block(nbytes)
    taken = torch.neuron.memory_allocated() - before
    assert x.data_ptr() % 64 == 0
    assert nbytes <= taken <= max(nbytes + 511, nbytes * 9 / 8 + 1)
    x.fill_(9)
    assert torch.equal(x.cpu(), torch.full((nbytes,), 9, dtype=torch.uint8))


def test_blocks_in_use_do_not_overlap() -> None:
    sizes = [1 + 37 * i for i in range(300)] + [MIB, MIB]
    blocks = [block(n) for n in sizes]
    ranges = sorted((b.data_ptr(), b.data_ptr() + b.numel()) for b in blocks)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))


@pytest.mark.parametrize("nbytes", [100, 50_000, 3 * MIB])
def test_freed_block_is_used_again(nbytes: int) -> None:
    x = block(nbytes)
    address = x.data_ptr()
    reserved = torch.neuron.memory_reserved()
    del x
    assert block(nbytes).data_ptr() == address
    assert torch.neuron.memory_reserved() == reserved


def test_peak_and_totals_follow_use_and_reset() -> None:
    torch.neuron.reset_peak_memory_stats()
    torch.neuron.reset_accumulated_memory_stats()
    before = torch.neuron.memory_allocated()
    x = block(8 * MIB)
    during = torch.neuron.memory_allocated()
    assert during == before + 8 * MIB
    del x
    assert torch.neuron.memory_allocated() == before
    assert torch.neuron.max_memory_allocated() == during
    stats = torch.neuron.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 8 * MIB
    assert stats["allocated_bytes.large_pool.allocated"] == 8 * MIB
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == before


def test_figures_agree_wherever_they_are_read() -> None:
    x = block(MIB)
    stats = torch.neuron.memory_stats()
    raw = _native.ffi.new("ae_memory *")
    _native.lib.ae_memory_stats(raw)
    assert raw.allocated == stats["allocated_bytes.all.current"] == torch.accelerator.memory_allocated()
    assert raw.allocated_peak == stats["allocated_bytes.all.peak"] == torch.accelerator.max_memory_allocated()
    assert raw.reserved == stats["reserved_bytes.all.current"] == torch.accelerator.memory_reserved()
    assert raw.active_blocks == stats["allocation.all.current"]
    assert stats["requested_bytes.all.current"] <= raw.allocated <= raw.reserved
    assert torch.neuron.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == raw.allocated
    assert x.is_neuron


def test_hits_and_misses_are_counted() -> None:
    torch.neuron.empty_cache()
    torch.neuron.reset_accumulated_memory_stats()
    block(7 * MIB)
    block(7 * MIB)
    raw = _native.ffi.new("ae_memory *")
    _native.lib.ae_memory_stats(raw)
    assert (raw.cache_misses, raw.cache_hits) == (1, 1)


def test_empty_cache_gives_free_memory_back_and_keeps_the_rest() -> None:
    kept = block(1000).fill_(5)
    del_me = [block(n) for n in (100, 10_000, 20 * MIB)]
    del del_me
    before = torch.neuron.memory_reserved()
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() <= before - 20 * MIB
    assert torch.equal(kept.cpu(), torch.full((1000,), 5, dtype=torch.uint8))


def test_cache_is_bounded_by_its_policy() -> None:
    torch.neuron.empty_cache()
    base = torch.neuron.memory_reserved() - torch.neuron.memory_allocated()
    usual = adaptive_eager.config.allocator_cache_bytes
    adaptive_eager.config.allocator_cache_bytes = 16 * MIB
    try:
        for size in range(1, 40):
            block(size * MIB)
        cached = torch.neuron.memory_reserved() - torch.neuron.memory_allocated()
        assert cached <= max(base, 16 * MIB) + MIB
    finally:
        adaptive_eager.config.allocator_cache_bytes = usual


def test_sizes_in_use_stay_cached_when_others_are_dropped() -> None:
    torch.neuron.empty_cache()
    usual = adaptive_eager.config.allocator_cache_bytes
    adaptive_eager.config.allocator_cache_bytes = 16 * MIB
    try:
        address = block(2 * MIB).data_ptr()
        for size in range(3, 30):
            block(size * MIB)
            assert block(2 * MIB).data_ptr() == address
    finally:
        adaptive_eager.config.allocator_cache_bytes = usual


def test_out_of_memory_says_how_much_and_passes(no_limit: None) -> None:
    torch.neuron.empty_cache()
    reserved = torch.neuron.memory_reserved()
    _native.lib.ae_memory_set_limit(reserved + 32 * MIB)
    kept = block(20 * MIB)
    ooms = torch.neuron.memory_stats()["num_ooms"]
    with pytest.raises(
        torch.OutOfMemoryError, match=r"Tried to allocate 20\.00 MiB \(20971520 bytes\).*allocated.*reserved"
    ):
        block(20 * MIB)
    assert torch.neuron.memory_stats()["num_ooms"] == ooms + 1
    del kept
    assert block(20 * MIB).numel() == 20 * MIB


def test_cached_memory_is_given_up_before_an_allocation_fails(no_limit: None) -> None:
    torch.neuron.empty_cache()
    _native.lib.ae_memory_set_limit(torch.neuron.memory_reserved() + 32 * MIB)
    block(20 * MIB)
    assert block(30 * MIB).numel() == 30 * MIB


def test_pending_work_is_launched_before_an_allocation_fails(no_limit: None) -> None:
    with adaptive_eager.using_mode("adaptive"):
        total = torch.zeros((), dtype=torch.int64, device="neuron")
        for step in range(9):
            if step == 3:  # the shapes are learned: from here on ops are recorded, and keep their operands
                torch.neuron.synchronize()
                torch.neuron.empty_cache()
                _native.lib.ae_memory_set_limit(torch.neuron.memory_reserved() + 40 * MIB)
            x = block(16 * MIB)
            total = total + x.view(torch.int64).fill_(1).sum()
            del x
        assert total.item() == 9 * 16 * MIB // 8


def test_impossible_size_is_refused_at_the_call() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="neuron out of memory"):
        torch.empty(1 << 50, dtype=torch.uint8, device="neuron")


def test_memory_fraction_bounds_and_validates(no_limit: None) -> None:
    torch.neuron.empty_cache()
    torch.neuron.set_per_process_memory_fraction(1e-9)
    assert torch.neuron.get_per_process_memory_fraction() == 1e-9
    with pytest.raises(torch.OutOfMemoryError):
        block(64 * MIB)
    with pytest.raises(ValueError, match="Allowed range: 0~1"):
        torch.neuron.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="must be `float`, got int"):
        torch.neuron.set_per_process_memory_fraction(1)


def test_threads_never_share_a_block() -> None:
    wrong: list[int] = []

    def work(mark: int) -> None:
        for step in range(300):
            held = [block(1 + (step * 7919 + i * 104729) % 20_000) for i in range(4)]
            for x in held:
                x.fill_(mark)
            if any((x != mark).any().item() for x in held):
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    before = torch.neuron.memory_allocated()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert torch.neuron.memory_allocated() == before


def test_summary_is_a_table_of_the_figures() -> None:
    x = block(64 * MIB)
    full, short = torch.neuron.memory_summary(), torch.neuron.memory_summary(abbreviated=True)
    assert {len(line) for line in full.splitlines()} == {77}
    assert "from large pool" in full and "from large pool" not in short
    assert f"{(torch.neuron.memory_allocated() >> 10):6d} KiB" in full
    assert x.numel() == 64 * MIB
