"""Switching modes, and what the recorder does for the dispatcher beside recording."""

import threading

import pytest
import torch

import adaptive_eager


def test_foreach_in_place_ops_bump_versions(mode: str) -> None:
    for _ in range(3):
        x = torch.arange(3.0, device="neuron").requires_grad_()
        w = torch.ones(3, device="neuron").requires_grad_()
        y = (x * w).sum()
        with torch.no_grad():
            torch._foreach_mul_([w], 5.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def test_mode_may_change_while_another_thread_records() -> None:
    stop = threading.Event()

    def switch() -> None:
        while not stop.is_set():
            adaptive_eager.set_mode("adaptive")
            adaptive_eager.set_mode("eager")

    thread = threading.Thread(target=switch)
    thread.start()
    try:
        for _ in range(300):
            x = torch.ones(8, device="neuron")
            for _ in range(20):
                x = x + 1
                x.mul_(1)
            assert x.tolist() == [21.0] * 8
    finally:
        stop.set()
        thread.join()
        adaptive_eager.set_mode("eager")


def test_memory_shared_through_dlpack_is_current() -> None:
    with adaptive_eager.using_mode("adaptive"):
        t = torch.zeros(4, device="neuron")
        u = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t))
        for _ in range(4):
            t.add_(1)
        assert u.tolist() == [4.0] * 4


def test_bounds_of_an_index_do_not_outlive_a_view_of_other_dtype() -> None:
    with adaptive_eager.using_mode("adaptive"):
        table = torch.arange(8.0, device="neuron")
        half = torch.tensor([1, 1], dtype=torch.int32, device="neuron")
        for _ in range(4):
            index = torch.cat([half, half]).view(torch.int64)
            with pytest.raises(IndexError):
                table[index]
