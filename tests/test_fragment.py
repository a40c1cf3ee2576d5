"""Replay: which results are computed, which get memory of their own, and that kept ones stay what they are."""

import warnings
from collections.abc import Callable

import pytest
import torch
from fusion import forced, launched, loops, settle

import adaptive_eager
from adaptive_eager import config, flush, stats

Agree = Callable[..., None]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def adaptive(reset: None) -> None:
    adaptive_eager.set_mode("adaptive")


def peak(program: Callable[[], object]) -> int:
    """Bytes that the program needs at its height above what was allocated before, once its loops have been compared."""
    for _ in range(5):
        program()
        settle()
    torch.neuron.empty_cache()
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    program()
    flush()
    return torch.neuron.max_memory_allocated() - before


def test_results_that_nobody_holds_are_not_computed() -> None:
    x = torch.ones(MIB, device="neuron")  # 4 MiB

    def program() -> None:
        for i in range(20):
            x * i

    assert peak(program) < 4 * MIB
    assert stats().ops_recorded >= 60


@pytest.mark.parametrize("fuse", [0, 1])
def test_temporaries_share_memory(fuse: int) -> None:
    config.fuse = fuse
    x = torch.ones(MIB, device="neuron")
    kept = []

    def program() -> None:
        y = x
        for i in range(20):
            y = y * i + 1
        kept[:] = [y]

    assert peak(program) <= 5 * 4 * MIB  # of 40 temporaries


def test_side_effects_of_unused_results_happen(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(8.0, device=device)
        for _ in range(3):
            x.add_(1)
            torch.rand(4, device=device)  # draws
            x.view(2, 4)[0].mul(2)
        return [x, torch.rand(2, device=device)]

    agree(program)


def test_kept_results_survive_replay(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        kept = []
        for i in range(30):
            middle = torch.full((257,), float(i - 9), device=device) + 1
            kept += [(middle * 3 - i).relu(), middle]
            if i % 4 == 0:
                kept[-1].sum().item()
        return kept

    agree(program)


def test_view_of_an_intermediate_keeps_it(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        kept = []
        for i in range(8):
            base = torch.full((4, 4), float(i), device=device) * 2
            kept.append(base.t()[1:, ::2])
            (base + 1).sum().item()
        return kept

    agree(program)


def test_what_is_alive_may_change_from_one_replay_to_the_next(agree: Agree) -> None:
    config.max_variants = 2

    def program(device: str) -> list[torch.Tensor]:
        kept = []
        for i in range(24):
            a = torch.full((33,), float(i), device=device) + 1
            b = a * 2
            c, order = (b - a).sort()
            values = (a, b, c, order)
            kept += [value for bit, value in enumerate(values) if i >> bit & 1]
            del a, b, c, order, values
            torch.zeros(1, device=device).add(i).item()
        return kept

    agree(program)


def test_results_that_the_kernel_allocates_are_kept_or_dropped(agree: Agree) -> None:
    functional = torch.nn.functional

    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(64.0, device=device).remainder(11).view(1, 4, 4, 4)
        kept = []
        for i in range(6):
            pooled, index = functional.max_pool2d(x + i, 2, return_indices=True)
            normed = functional.layer_norm(pooled, (2, 2))
            values, places = normed.flatten().topk(3)
            kept += [[pooled, values], [index, places], [normed]][i % 3]
            kept.append(functional.linear(normed.flatten(1), torch.ones(2, 16, device=device)))
        return kept

    agree(program)


def test_regions_take_other_tensors_of_the_same_kind(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        tensors = [torch.full((5,), float(i), device=device) for i in range(6)]
        for i in range(12):
            a, b = tensors[i % 6], tensors[(i * 5 + 1) % 6]
            a.mul_(0.5).add_(b)
            a.sum().item()
        return tensors

    agree(program)


def test_replaced_storage_is_followed(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        buffer = torch.zeros(6, device=device)
        results = []
        for i in range(6):
            buffer.add_(i)
            if i == 2:
                buffer.data = torch.full((6,), 7.0, device=device)
            if i == 4:
                buffer.resize_(9)[6:] = 1
            results.append(buffer * 2)
        return results

    agree(program)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int8, torch.uint8, torch.int64, torch.bool])
def test_each_op_rounds_and_wraps_in_its_own_dtype(dtype: torch.dtype, agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.tensor([0, 1, 2, 100, 127, 77, 3], device=device).to(dtype)
        y = x.flip(0)
        results = [x + y, (x * y).to(torch.float64), torch.where(x > y, x, y), x.sum()]
        if dtype is not torch.bool:
            results += [(x * 3 + 1) - y, x.clone().add_(100).mul_(2).to(torch.int64), (x + y + y).to(torch.float32)]
        return results

    agree(program)


def test_wide_integers_stay_exact(agree: Agree) -> None:
    numbers = [2**24 + 1, 2**31, -(2**31), 2**53 + 1, -(2**53 + 1), 2**62 + 3, -(2**63), 2**63 - 1]

    def program(device: str) -> list[torch.Tensor]:
        x = torch.tensor(numbers, device=device)
        results = [x // 7, x % 1000003, x * 3, x.cumsum(0)]
        for number in numbers:
            results += [x == number, x - number, torch.full((2,), number, device=device), x.clamp(min=number)]
        return results

    agree(program)


def test_many_inputs_and_many_live_outputs(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        tensors = [torch.full((4,), float(i % 50), device=device) for i in range(600)]
        live = [t * 2 + i for i, t in enumerate(tensors)]
        total = live[0]
        for t in live:
            total = torch.where(total > t, total - 1, t)
        return [torch.stack(tensors).sum(0), torch.cat(live), total, *live[::100]]

    agree(program)


@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"])
def test_replay_neither_warns_nor_takes_more_memory_than_the_kernel_would(loss: str) -> None:
    x = torch.linspace(-1, 1, 300, device="neuron")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            found = getattr(torch.nn.functional, loss)(x, x.flip(0))
            expected = getattr(torch.nn.functional, loss)(x.cpu(), x.cpu().flip(0))
            assert found.item() == expected.item()
            assert found.untyped_storage().nbytes() <= expected.untyped_storage().nbytes()


def test_empty_and_zero_dim_tensors(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        empty, one = torch.empty(0, 3, device=device), torch.tensor(2.0, device=device)
        empty.add_(1)
        return [
            empty * 2,
            empty.sum(),
            empty.sum(0),
            torch.cat([empty, empty + one]),
            one * 3,
            one.clone().mul_(one),
            empty.t() + one,
        ]

    agree(program)


def test_first_comparison_of_a_loop_needs_no_more_than_its_ops() -> None:
    x = torch.ones(MIB, device="neuron")

    def program() -> torch.Tensor:
        y = x
        for i in range(20):
            y = y * i + 1
        return y

    with forced(compare=1):
        torch.neuron.empty_cache()
        torch.neuron.reset_peak_memory_stats()
        before = torch.neuron.memory_allocated()
        for _ in range(6):
            with launched() as found:
                kept = program()
            settle()
    assert loops(found)
    assert torch.neuron.max_memory_allocated() - before <= 6 * 4 * MIB  # of 40 temporaries
    assert kept[0] == kept[-1]
