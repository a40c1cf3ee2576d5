"""How the program is cut into regions, which of them are known, and how many are kept."""

from collections.abc import Callable

import pytest
import torch
from fusion import settle

import adaptive_eager
from adaptive_eager import config, flush, reset_stats, stats

Agree = Callable[..., None]


@pytest.fixture(autouse=True)
def adaptive(reset: None) -> None:
    adaptive_eager.set_mode("adaptive")


def body(x: torch.Tensor, ops: int = 37) -> torch.Tensor:
    """`ops` recorded ops."""
    for i in range(ops - 1):
        x = x * 1.5 if i % 3 == 0 else x - 0.25 if i % 3 == 1 else x.clamp(-4, 4)
    return torch.tanh(x)


def counted(program: Callable[[], object]) -> adaptive_eager.Stats:
    flush()
    reset_stats()
    program()
    flush()
    return stats()


def test_read_in_a_loop_ends_one_region_per_iteration_and_each_is_known() -> None:
    x = torch.linspace(-1, 1, 16, device="neuron")

    def loop(count: int) -> None:
        for _ in range(count):
            torch.tanh(x * 2 + 1).sum().item()

    loop(4)
    found = counted(lambda: loop(50))
    assert (found.fragment_hits, found.fragment_misses) == (50, 0)
    assert found.flush_reasons["value_read"] == 50
    assert found.ops_direct == 50  # the reads


def test_loop_without_sync_is_cut_at_the_same_places() -> None:
    x = torch.linspace(-1, 1, 16, device="neuron")

    def loop(count: int) -> None:
        y = x
        for _ in range(count):
            y = body(y)

    loop(300)
    found = counted(lambda: loop(1000))
    assert found.ops_recorded == 37_000
    assert found.fragment_hits > 0.99 * (found.fragment_hits + found.fragment_misses)
    assert found.flush_reasons["boundary"] > 0
    assert found.launches <= 37_000 / config.min_region_ops + 1


def test_long_straight_program_is_known_when_it_comes_again() -> None:
    x = torch.linspace(-1, 1, 16, device="neuron")

    def program() -> None:
        y = x
        for i in range(1, 400):
            y = (y * i).roll(i % 7).clamp(-i, i)

    for _ in range(3):
        counted(program)
    found = counted(program)
    assert found.fragment_misses == 0 and found.fragment_hits > 1


def test_every_launch_is_a_direct_op_or_a_region() -> None:
    x = torch.linspace(-1, 1, 16, device="neuron")

    def program() -> None:
        for i in range(20):
            y = body(x, 9)
            if i % 3 == 0:
                y.sum().item()
            if i % 5 == 0:
                y.nonzero()

    program()
    found = counted(program)
    assert found.launches == found.ops_direct + found.fragment_hits + found.fragment_misses
    assert found.fragment_hits + found.fragment_misses == sum(found.flush_reasons.values())


def test_region_ends_at_the_bound_on_ops() -> None:
    config.min_region_ops, config.max_region_ops, config.boundary_bits = 1, 32, 16
    xs = [torch.ones(n, device="neuron") for n in range(1, 101)]  # no two records alike

    def program() -> None:
        for x in xs:
            x.neg_()

    program()
    found = counted(program)
    assert found.flush_reasons["op_limit"] >= 2
    assert found.ops_recorded == 100


def test_region_ends_at_the_bound_on_bytes() -> None:
    config.max_pending_bytes = 1 << 20
    x = torch.ones(1 << 16, device="neuron")  # 256 KiB

    def program() -> None:
        for _ in range(40):
            x.neg()
            assert stats().pending_bytes <= (1 << 20) + (1 << 18)

    program()
    assert counted(program).flush_reasons["byte_limit"] >= 8


def test_pending_ops_are_bounded() -> None:
    x = torch.zeros(4, device="neuron")
    most = 0
    for _ in range(3000):
        x = x + 1
        most = max(most, stats().pending_ops)
    assert 0 < most <= config.max_region_ops
    assert x.tolist() == [3000.0] * 4


def test_learning_rate_that_changes_each_step_compiles_and_caches_nothing() -> None:
    model = torch.nn.Linear(8, 8).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(4, 8, device="neuron")

    def train(first: int, steps: int) -> None:
        for step in range(first, first + steps):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 / (1 + step)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            flush()

    train(0, 12)  # that no loop may be made for one rate is known after a few
    settle()
    train(12, 6)
    kept = stats().fragments_cached
    found = counted(lambda: train(18, 30))
    assert found.fragment_misses == 0 and found.fragments_cached == kept and found.fragments_compiled == 0
    assert found.direct_reasons["first_seen"] == 0


@pytest.mark.parametrize("kind", [float, int, complex])
def test_number_that_is_new_each_call_caches_nothing(kind: type, assert_same: Callable[..., None]) -> None:
    x = torch.arange(1, 5).to({float: torch.float32, int: torch.int64, complex: torch.complex64}[kind])
    y = x.to("neuron")

    def program(x: torch.Tensor, first: int, count: int) -> list[torch.Tensor]:
        results = []
        for i in range(first, first + count):
            number = kind(i) if kind is int else kind(i + 0.25)
            results.append((x * number + number).sub(number, alpha=2))
            flush()
        return results

    program(y, 0, 4)
    kept = stats().fragments_cached
    flush()
    reset_stats()
    found = program(y, 4, 20)
    after = stats()
    assert after.fragment_misses == 0 and after.fragments_cached == kept and after.direct_reasons["first_seen"] == 0
    assert_same(found, program(x, 4, 20))


def test_numbers_that_coincide_in_one_call_may_differ_in_the_next(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        a, b = torch.tensor([1.0, 2.0, 3.0], device=device), torch.tensor([3.0, 1.0, 2.0], device=device)
        return [
            torch.where(a.mul(p).sub(b, alpha=q) > r, a * q - p, b + r)
            for p in (1.0, 2.0)
            for q in (1.0, 2.0)
            for r in (1.0, 2.0)
        ]

    agree(program)


def test_tensors_that_coincide_in_one_call_may_differ_in_the_next(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        given = [torch.arange(3.0, device=device) * 10**i for i in range(3)]
        return [(a * 2 + b - c) * a for a in given for b in given for c in given]

    agree(program)


def test_attributes_belong_to_the_key(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(16.0, device=device).view(4, 4)
        results = [x.sum(d, keepdim=k) for d in (0, 1, -1) for k in (False, True)]
        results += [x.roll(s, d) for s in (1, 2, -1) for d in (0, 1)] + [x.tril(k) for k in (-1, 0, 1)]
        results += [torch.div(x - 7, 2, rounding_mode=mode) for mode in ("floor", "trunc", None)]
        results += [x.sort(1, descending=d).values for d in (False, True)] + [torch.cat([x, x + 1], d) for d in (0, 1)]
        return results + [x.to(dtype) for dtype in (torch.int32, torch.float64, torch.bool)]

    agree(program)


def test_size_one_the_first_time_and_more_the_next(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        results = []
        for n in (1, 3, 2, 1):
            x = torch.arange(float(n), device=device)
            results += [x.sum(0), x.cumsum(0), x[:, None] + x, x.view(n, 1).squeeze(), x.expand(2, n).sum(-1)]
        return results

    agree(program)


def test_regions_with_the_same_beginning_take_different_ends(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        results = []
        for i in range(12):
            x = torch.full((8,), float(i), device=device).mul(3).sub(1)
            x = x.relu() if i % 2 else x.neg()
            results.append((x + i) if i % 3 else x.sum())
        return results

    agree(program)


def test_changing_shapes_keep_the_caches_within_their_bounds() -> None:
    config.max_fragments, config.max_nodes, config.max_metadata = 16, 256, 128
    for n in range(1, 400):
        x = torch.full((n,), 2.0, device="neuron")
        for _ in range(3):
            assert (x * 3 + 1).sum().item() == 7 * n
        assert stats().fragments_cached <= 16
    assert stats().fragment_evictions > 0


def test_evicted_region_is_learned_again() -> None:
    config.max_fragments = 1
    for n in (3, 4, 5, 3, 4, 5, 3):
        x = torch.full((n,), 2.0, device="neuron")
        for _ in range(4):
            assert (x * 3 + 1).tolist() == [7.0] * n


def test_mode_may_change_anywhere(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.arange(8.0, device=device)
        results = []
        for i in range(6):
            with adaptive_eager.using_mode("eager" if i % 2 else "adaptive"):
                x = x * 2 - i
                results.append(x)
            x = x.roll(1)
        return results

    agree(program)
    assert adaptive_eager.mode() == "adaptive"


def test_region_longer_than_the_bound_on_records_survives_its_own_trimming() -> None:
    x = torch.ones(3, device="neuron")
    limits = {"max_nodes": 64, "min_region_ops": 400}
    with adaptive_eager.using_mode("adaptive"):
        adaptive_eager.flush()
        before = {name: config[name] for name in limits}
        try:
            for name, value in limits.items():
                config[name] = value
            for _ in range(2):
                x = x + 0  # learned, so that what follows is one region of 200 records
            x.tolist()
            reset_stats()
            for _ in range(3):
                y = x
                for _ in range(200):
                    y = y + 1
                assert y.tolist() == [201.0] * 3
            assert stats().fragment_hits == 2
        finally:
            for name, value in before.items():
                config[name] = value
