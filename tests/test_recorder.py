"""Recorded ops keep program order, whatever they alias; errors, random numbers and threads as in eager mode."""

import gc
import random
import threading
import weakref
from collections.abc import Callable

import pytest
import torch

import adaptive_eager
from adaptive_eager import flush, stats

Agree = Callable[..., None]

pytestmark = pytest.mark.usefixtures("reset", "mode")


# Order


@pytest.mark.parametrize("seed", range(5))
def test_value_read_before_a_write_keeps_the_old_contents(seed: int, agree: Agree) -> None:
    order = random.Random(seed).sample(range(6), 6)

    def program(device: str) -> list[list[int]]:
        x, y = torch.arange(6, device=device), torch.arange(6, device=device) * 10
        results = [x + y]
        x[2:4] = 99
        results.append(x * 2)
        x.copy_(y)
        results.append(x[1:4] - y[:3])
        x[0] = -1
        y.zero_()
        results += [x + y, x, y]
        return [results[i].tolist() for i in order]

    agree(program)


def test_pieces_see_writes_to_the_whole_and_the_whole_sees_theirs(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        base = torch.arange(24.0, device=device).view(4, 6)
        pieces = [
            *base.split(2, 1),
            *base.chunk(2),
            *base.unbind(),
            *base.tensor_split(5, 1),
            base.t(),
            base.diagonal(),
        ]
        base[:, 1] = -7
        pieces[0].mul_(2)
        pieces[-1].add_(100)
        pieces[-2][3].neg_()
        return [base, *pieces]

    agree(program)


def test_write_at_some_places_then_read_at_others(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        results = []
        index = torch.arange(4, device=device).flip(0)
        for write in (
            lambda t: t.index_copy_(0, index, t * 2 + 1),
            lambda t: t.index_add_(0, index, t * 2 + 1),
            lambda t: t.index_put_((index,), t * 2 + 1),
            lambda t: t.scatter_(0, index[:, None].expand(4, 8), t * 2 + 1),
        ):
            for read in (
                lambda t: t.add_(t.flip(0)),
                lambda t: t.copy_(t.roll(1, 0)),
                lambda t: t[1:].copy_(t[:-1].clone()),
                lambda t: t.sub_(t.sum(0, keepdim=True)),
            ):
                t = torch.arange(32.0, device=device).view(4, 8)
                write(t)
                read(t)
                results.append(t)
        return results

    agree(program)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda big: big.view(-1)[:15].view(3, 5).t(),
    "columns": lambda big: big[:5, 2:5],
    "stepped": lambda big: big[::2, ::4],
    "row offset": lambda big: big.view(-1)[7:22].view(5, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_place_op_writes_its_view_and_nothing_around_it(layout: str, agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        results = []
        for op in (
            lambda d, a: d.add_(a, alpha=2).sub_(1),
            lambda d, a: d.mul_(a).neg_(),
            lambda d, a: d.addcmul_(a, a, value=2),
            lambda d, a: d.clamp_(2, 6),
            lambda d, a: torch.maximum(a, d, out=d),
            lambda d, a: d.copy_(a > d),
            lambda d, a: d.masked_fill_(d > 4, -1),
            lambda d, a: d.zero_(),
        ):
            for other in LAYOUTS.values():
                big = torch.arange(120.0, device=device).remainder(9).view(10, 12)
                op(LAYOUTS[layout](big), other(big.clone()))
                results.append(big)
        return results

    agree(program, rounds=3)


def test_out_writes_into_a_view(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x, rows = torch.arange(6.0, device=device), torch.zeros(4, 6, device=device)
        torch.mul(x, 2, out=rows[1])
        torch.sum(rows, 0, out=rows[2])
        torch.add(rows[1], rows[2], out=rows[3])
        values, indices = torch.empty(4, device=device), torch.empty(4, dtype=torch.int64, device=device)
        torch.max(rows, 1, out=(values, indices))
        return [rows, values, indices]

    agree(program)


def test_host_number_is_read_at_the_call(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x, host = torch.arange(4.0, device=device), torch.tensor([9.0, 2.0, 7.0])
        results = [x * host[1], host[2] - x, x.clone().mul_(host[0])]
        host.fill_(1000)
        return results

    agree(program)


def test_gradients_and_versions_when_values_change_in_place(agree: Agree) -> None:
    def program(device: str) -> list[object]:
        w = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
        a = w * 2
        alias = a.detach()
        a.mul_(2)
        row = a[:2]
        row.mul_(5)
        a.sum().backward()
        with torch.no_grad():
            w.mul_(10).add_(1)
        return [w.grad, a, alias, w, a._version, alias._version]

    agree(program)


def test_saved_value_that_was_changed_is_refused_in_backward() -> None:
    for _ in range(3):
        w = torch.ones(3, device="neuron", requires_grad=True)
        y = (w * 1).exp()
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.sum().backward()


def test_hooks_read_finished_gradients(agree: Agree) -> None:
    def program(device: str) -> list[object]:
        log: list[object] = []
        w = torch.linspace(-1, 1, 4).to(device).requires_grad_()
        w.register_hook(lambda g: log.append(g.sum().item()))
        w.register_hook(lambda g: g * 2)
        w.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.tolist()))
        for _ in range(3):
            w.grad = None
            (w * w).sum().backward()
        return log

    agree(program)


# Lifetimes


def test_recorded_op_does_not_keep_python_objects() -> None:
    for _ in range(3):
        x = torch.ones(4, device="neuron")
        y = x + 1
        gone = weakref.ref(x)
        del x
        assert gone() is None
        assert y.tolist() == [2.0] * 4


def test_recorded_op_keeps_the_memory_it_reads(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        results = []
        for i in range(40):
            a = torch.full((256,), float(i), device=device)
            results.append(a + 1)
            del a
            torch.full((256,), -1.0, device=device).mul_(2)
        total = torch.zeros(256, device=device)
        for i in range(40):
            t = torch.full((256,), float(i), device=device)
            total.add_(t.view(16, 16).t().reshape(-1))
            t.fill_(1e9)
        return [*results, total]

    agree(program)


def test_memory_is_given_back_after_the_launch() -> None:
    def program() -> None:
        x = torch.ones(1 << 16, device="neuron")
        for _ in range(10):
            x = x * 2

    for _ in range(3):
        program()
    flush()
    gc.collect()
    before = torch.neuron.memory_allocated()
    program()
    flush()
    assert torch.neuron.memory_allocated() == before


# Errors


def failures(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """By name, calls that raise; x has 8 elements 0 to 7."""
    n, device = x.numel(), x.device
    return {
        "broadcast": lambda: x + torch.ones(n + 1, device=device),
        "in-place broadcast": lambda: x[:2].add_(torch.ones(3, 2, device=device)),
        "matmul": lambda: x.view(2, -1) @ x.view(2, -1),
        "cat": lambda: torch.cat([x.view(2, -1), x.view(4, -1)]),
        "dtype": lambda: torch.ones(3, dtype=torch.int32, device=device).add_(1.5),
        "dimension": lambda: x.sum(4),
        "leaf": lambda: torch.ones(2, device=device, requires_grad=True).add_(1),
        "item of many": lambda: x.item(),
        "copy size": lambda: x.copy_(torch.ones(n - 1, device=device)),
        "index": lambda: x.index_select(0, torch.tensor([9], device=device)),
        "pending index": lambda: x.gather(0, torch.full((2,), 9, device=device)),
        "embedding": lambda: torch.embedding(x.view(4, 2), torch.tensor([4], device=device)),
        "class": lambda: torch.nn.functional.cross_entropy(x.view(1, 8), torch.tensor([8], device=device)),
        "integer division": lambda: torch.arange(3, device=device) // torch.zeros(3, dtype=torch.long, device=device),
        "pending divisor": lambda: torch.remainder(5, torch.ones(3, dtype=torch.long, device=device) * 0),
        "cholesky": lambda: torch.linalg.cholesky(-torch.eye(3, device=device)),
        "overlap": lambda: x[1:].add_(x[:-1]),
        "overlapping copy": lambda: x[2:].copy_(x[:-2]),
        "overlapping out": lambda: torch.mul(x[:-1], 2, out=x[1:]),
        "expanded": lambda: x[:1].expand(5).add_(1),
        "devices": lambda: x + torch.ones(n),
    }


@pytest.mark.parametrize("name", failures(torch.arange(8.0)))
def test_error_is_raised_at_its_call_and_harms_nothing_else(name: str, assert_same: Callable[..., None]) -> None:
    numbers = torch.arange(8.0)
    for _ in range(3):
        x = numbers.to("neuron")
        a = x * 2
        b = a + 1
        with pytest.raises((RuntimeError, IndexError)):
            failures(x)[name]()
        a[2:].neg_()
        c = b * a
        expected = numbers * 2
        expected[2:].neg_()
        assert_same([x, a, b, c], [numbers, expected, numbers * 2 + 1, (numbers * 2 + 1) * expected])


# Random numbers


def test_random_stream_is_the_cpus(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        results = [torch.randn(5, device=device), torch.rand(3, device=device), torch.randperm(9, device=device)]
        results.append(torch.nn.functional.dropout(torch.ones(50, device=device), 0.3))
        results.append(torch.randint(100, (4,), device=device))
        results.append(torch.multinomial(torch.ones(6, device=device), 3))
        results.append(torch.empty(4, device=device).normal_(2, 3).exponential_())
        results.append(torch.bernoulli(torch.full((9,), 0.5, device=device)))
        return results

    agree(program)


def test_seeding_and_reading_the_state_keep_their_place_among_recorded_ops() -> None:
    def program(
        device: str, state: Callable[[], torch.Tensor], restore: Callable[[torch.Tensor], None]
    ) -> list[list[float]]:
        a = torch.rand(3, device=device)
        kept = state()
        b = torch.rand(3, device=device)
        restore(kept)
        c = torch.rand(3, device=device)
        torch.manual_seed(7)
        return [t.tolist() for t in (a, b, c, torch.rand(3, device=device))]

    for _ in range(4):
        torch.manual_seed(3)
        found = program("neuron", torch.neuron.get_rng_state, torch.neuron.set_rng_state)
        torch.manual_seed(3)
        assert found == program("cpu", torch.get_rng_state, torch.set_rng_state)
        assert found[1] == found[2]


def test_own_generator_is_used_in_order(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        first, second = (torch.Generator(device).manual_seed(seed) for seed in (1, 2))
        return [torch.rand(3, generator=g, device=device) for g in (first, second, first, None, second)]

    agree(program)


# Threads


def test_threads_record_side_by_side() -> None:
    shared, total = torch.arange(32.0, device="neuron"), torch.zeros(32, device="neuron")
    wanted = torch.arange(32.0)
    lock, errors = threading.Lock(), []

    def work(k: int) -> None:
        try:
            own = torch.zeros(32, device="neuron")
            for i in range(60):
                scale = (i * 7 + k) % 5
                t = shared * scale + k
                own.add_(1)
                if i % 5 == 0:
                    assert t.tolist() == (wanted * scale + k).tolist()
                if i % 11 == 0:
                    w = torch.ones(32, device="neuron", requires_grad=True)
                    (w * t).sum().backward()
                    assert w.grad is not None and w.grad.tolist() == (wanted * scale + k).tolist()
                with lock:
                    total.add_(1)
            assert own.tolist() == [60.0] * 32
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not errors, errors[0]
    assert total.tolist() == [240.0] * 32 and shared.tolist() == wanted.tolist()


def test_deep_chain_needs_no_deep_stack() -> None:
    result = []

    def chain() -> None:
        x = torch.zeros(8, device="neuron")
        for _ in range(20_000):
            x = torch.relu(x) + 1
        result.append(x.tolist())

    old = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=chain)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    assert result == [[20_000.0] * 8]
    assert stats().pending_ops <= adaptive_eager.config.max_region_ops
