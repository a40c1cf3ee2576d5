"""The planner: what may run in one loop, in which order, what is stored where. The results are the CPU's."""

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from fusion import check, compare, forced, forget, launched, loops, no_refusals, settle, units

import adaptive_eager
from adaptive_eager import _native, config

Tensors = list[torch.Tensor]


@pytest.fixture(autouse=True, params=[0, 1], ids=["trusted", "compared"])
def fusing(request: pytest.FixtureRequest, reset: None) -> Iterator[None]:
    """Loops' first results are used, and in a second run compared with those of the kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with forced(request.param), torch.no_grad():
        forget()
        yield
    torch.set_num_threads(before)


def randn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], Tensors]:
    return lambda: [torch.randn(shape, dtype=dtype) for shape in shapes]


S = (37, 19)


# What becomes one loop


def test_chain_is_one_loop() -> None:
    found = check(lambda x, y: ((x * y + 1).relu() - y) * 2, randn(S, S))
    assert loops(found) == ["mul-add-relu-sub-mul"]


def test_in_place_chain_keeps_its_order() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        x.add_(y)
        y.mul_(x)
        x.sub_(y).mul_(3)
        y.add_(x)
        return [x + y]

    assert loops(check(program, randn(S, S))) == ["add-mul-sub-mul-add-add"]


def test_read_before_overwriting_gives_the_old_value() -> None:
    def program(x: torch.Tensor) -> Tensors:
        old = x * 2
        x.fill_(3)
        new = x * 2
        x.zero_()
        return [old, new, x + 1]

    check(program, randn(S))


def test_opaque_read_before_overwriting_gives_the_old_value() -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x + 1
        old = y.cumsum(0)
        y.mul_(2)
        middle = y.cumsum(0)
        y.add_(1)
        return [old, middle, y]

    assert all(name == "cumsum" for name, count in units(check(program, randn(S))) if not count)


def test_temporary_read_by_an_opaque_op_and_by_a_later_loop_is_stored() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x + 1).relu()
        return (y @ w).mul(2) + y.sum() * y[:, :19]

    found = check(program, randn((24, 32), (32, 19)))
    assert len(loops(found)) >= 2


def test_result_that_is_overwritten_after_an_opaque_read_is_stored_both_times() -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x * 2
        first = y.sort().values
        y.add_(x)
        second = y.sort().values
        return [first, second]

    check(program, randn(S))


def test_steps_that_run_as_they_are_find_the_memory_of_what_loops_leave_out() -> None:
    """The list's second element is dead: no loop writes it, but the op itself does, when loops are compared with it."""

    def program(x: torch.Tensor) -> Tensors:
        dead = x.floor()
        scaled = torch.add(dead, x, alpha=0.3)
        total = scaled.sum(0)
        torch._foreach_add_([x, dead, total], 0.7)
        return [scaled, total.square_().sqrt()]

    check(program, randn((2,)))
    check(program, randn((64,)))


def test_python_float_beside_integers_is_a_float() -> None:
    def program(x: torch.Tensor) -> Tensors:
        made = [x < 0.3, x + 0.3, x * 0.5, 0.3 - x, x.clamp(-0.3, 0.7), torch.where(x > 0, x, 0.5), x / 0.3, x > 2.5]
        return [*made, torch.nn.functional.threshold(x, 0.5, 7.9), torch.nn.functional.hardtanh(x, -1.5, 2.5)]

    check(program, lambda: [torch.randint(-9, 9, (70,))])


def test_copy_fill_and_zero_in_chains() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        x.copy_(y).add_(1)
        y.zero_().sub_(x)
        z = torch.empty_like(x).copy_(y).mul_(2)
        z[3:5].fill_(7)
        z.add_(x)
        half = torch.empty_like(x, dtype=torch.bfloat16).copy_(z)
        return [z, half, half.float() + 1]

    check(program, randn(S, S))


def test_results_are_rounded_where_the_next_op_reads_them() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        half = x.bfloat16() * y.bfloat16() + 1
        count = (x * 10).to(torch.int64) // 1 + 3
        return [half.float(), (count * 0.5).to(torch.bfloat16), (x > y).to(torch.float32) * x]

    check(program, randn(S, S))


# Views


def test_overlapping_views_written_in_one_region() -> None:
    def program(x: torch.Tensor) -> Tensors:
        a, b = x[:-1], x[1:]
        a.mul_(2)
        b.add_(1)
        a.sub_(b * 2)
        x[::2].mul_(3)
        x.t()[:, 1:].add_(5)
        return [a + b, x * 1]

    check(program, randn(S))


def test_transposed_reader_of_what_a_loop_writes() -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x + 1
        z = y.t() * y
        y.add_(z.t())
        return [y, z]

    check(program, randn((23, 23)))


def test_transposed_target_of_its_own_values() -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x + 1
        y.t().copy_(x)
        return [y * 2, y.t() - x]

    check(program, randn((23, 23)))


def test_disjoint_column_slices_are_independent() -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x * 1
        a, b = y.chunk(2, 1)
        a.mul_(2)
        b.add_(1)
        c = a * b
        a.add_(c)
        return [y, c]

    found = check(program, randn((16, 64)))
    # y is written whole, then in halves; everything after that is element for element, on one level
    assert loops(found) == ["mul", "mul-add-mul-add"]


def test_expanded_operand_that_is_overwritten_later() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        wide = y.expand_as(x)
        z = x + wide
        y.add_(1)
        return [z, x * wide, z - y]

    check(program, randn((17, 33), (33,)))


@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (1, 3)])
def test_target_that_overlaps_itself_is_no_loop(strides: tuple[int, int]) -> None:
    def program(x: torch.Tensor) -> Tensors:
        v = x.as_strided((5, 7), strides)
        v.mul_(2)
        w = v + 1
        v.sub_(w)
        return [w, v * 3]

    found = check(program, randn((64,)))
    assert ("mul_.Tensor", 0) in units(found)


def test_target_whose_own_column_is_subtracted_is_no_loop() -> None:
    def program(x: torch.Tensor) -> Tensors:
        x.sub_(x[:, 5:6])
        return [x + 1]

    found = check(program, randn(S))
    assert [count for name, count in units(found) if name == "sub_.Tensor"] == [0]


def test_factor_of_a_column_is_no_loop() -> None:
    """There the scalar tail of ATen's loop is not contracted."""
    check(
        lambda x, c: [torch.sub(x, c, alpha=0.3), torch.add(x, c, alpha=-1.7), torch.add(x, x, alpha=0.3)],
        randn(S, (37, 1)),
    )


def test_python_integer_beside_bools_is_an_integer() -> None:
    def program(x: torch.Tensor) -> Tensors:
        a = x > 0
        return [a < -1, a >= 2, a == 1, a + 1, a * 3, torch.add(a, a, alpha=-1), torch.where(a, a, 2), a & 3]

    check(program, randn(S))


def test_out_of_another_dtype_is_rounded_like_the_result() -> None:
    def program(x: torch.Tensor, wide: torch.Tensor, half: torch.Tensor) -> Tensors:
        h, mask = x.bfloat16(), x > 0
        torch.mul(h, h, out=wide)
        torch.exp(x, out=half)
        made = torch.empty_like(wide)
        torch.add(mask, mask, out=made)
        return [wide + 1, half + 1, made * 2]

    def inputs() -> Tensors:
        return [torch.randn(S), torch.empty(S), torch.empty(S, dtype=torch.bfloat16)]

    check(program, inputs)


def test_views_of_another_dtype_see_the_same_bytes() -> None:
    def program(x: torch.Tensor) -> Tensors:
        whole = x.view(torch.int32)
        x.mul_(2)
        bits = whole & 0x7FFFFFFF
        whole.copy_(bits)
        return [bits, x + 1, x.view(torch.int16) & 255]

    check(program, randn(S))


def test_opaque_op_on_no_elements_of_a_loops_result() -> None:
    def program(x: torch.Tensor) -> Tensors:
        made = torch._foreach_neg([x, x])
        made[0][37:].cumsum_(-1)
        return [*made, made[0] + 1]

    check(program, randn(S))


def test_partial_writes_of_a_temporary() -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = torch.empty_like(x)
        y[:, :5].copy_(x[:, :5] * 2)
        y[:, 5:].fill_(1)
        z = y + x
        y[2:4].mul_(3)
        return [z, y.sum(0)]

    check(program, randn(S))


# Shapes


def test_ops_on_other_shapes_do_not_mix() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        return [x * 2 + 1, y * 3 - 1, (x.view(-1)[: y.numel()] + y.view(-1)) * 4, y.t() + 1]

    check(program, randn(S, (13, 7)))


def test_broadcast_reduction_and_pointwise() -> None:
    def program(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred * (variance + 1e-5).rsqrt() * scale + bias

    found = check(program, randn((16, 48), (48,), (48,)))
    assert [name for name, count in units(found) if not count] == ["mean.dim", "mean.dim"]


def test_reshaped_results_join_element_for_element() -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x + 1
        z = y.view(-1) * 2
        return [z, z.view(x.shape) - y]

    assert loops(check(program, randn(S))) == ["add-mul-sub"]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0,), (3, 0)])
def test_single_elements_and_none(shape: tuple[int, ...]) -> None:
    check(
        lambda x, y: [(x + y) * 2, (x > 0).to(torch.float32) + y, x.t() - 1 if x.dim() == 2 else x], randn(shape, shape)
    )


def test_many_dimensions_and_odd_orders() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        a = x.permute(3, 1, 0, 2) * y
        b = a[:, ::2].permute(1, 0, 3, 2).relu()
        a.add_(1)
        return [a, b, b.transpose(0, 3) + 1]

    check(program, randn((3, 4, 5, 6), (6, 4, 3, 5)))


# Lists


def test_list_with_one_tensor_twice() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        torch._foreach_add_([x, y, x], 1.5)
        torch._foreach_mul_([x, y, x], [y, x, y])
        return [x * y]

    check(program, randn(S, S))


def test_number_that_a_list_of_halves_is_multiplied_with_in_place() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        torch._foreach_mul_([x], 0.3)
        torch._foreach_mul_([x, y], [0.425, 1.7])
        y.mul_(0.3)
        return [*torch._foreach_mul([x, y], 0.3), y * 0.3, 0.3 * y]

    check(program, randn(S, S, dtype=torch.bfloat16))


def test_list_with_overlapping_views() -> None:
    def program(x: torch.Tensor) -> Tensors:
        torch._foreach_mul_([x[:-1], x[1:]], 2)
        torch._foreach_add_([x, x.t().t(), x[:, 1:]], 1)
        return list(torch._foreach_neg([x[:-1], x[1:]]))

    check(program, randn(S))


def test_list_with_disjoint_views_is_fused() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        a, b = x.chunk(2, 1)
        torch._foreach_mul_([a, b, y], 2)
        torch._foreach_add_([a, b, y], 1)
        return [x.sum(0)]

    found = check(program, randn((8, 32), (5,)))
    assert all(count for name, count in units(found) if name.startswith(("_foreach", "mul")))


def test_list_elements_of_unlike_shapes_and_layouts() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Tensors:
        made = torch._foreach_mul([x, y.t(), z[::2]], 0.5)
        torch._foreach_add_(made, [x, y.t(), z[::2]])
        torch._foreach_lerp_(made, [x + 1, y.t(), z[::2]], 0.3)
        return [*made, made[0] - x]

    check(program, randn((5, 7), (7, 3), (11,)))


# What is kept


def test_results_that_are_kept_hold_their_values() -> None:
    kept: dict[str, Tensors] = {"cpu": [], "neuron": []}

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.relu()
        w = (z + y) * z
        kept[x.device.type] += [y, w]
        return w + 1

    check(program, randn(S))
    compare(kept["neuron"], kept["cpu"], "kept")


def test_results_kept_only_sometimes() -> None:
    number = iter(range(1000))
    kept: dict[str, Tensors] = {"cpu": [], "neuron": []}

    def program(x: torch.Tensor) -> torch.Tensor:
        which = next(number) // 2 % 4  # the same on both devices
        a = x + 1
        b = a * 2
        c = b - x
        if which & 1:
            kept[x.device.type].append(a)
        if which & 2:
            kept[x.device.type].append(b)
        return c.relu()

    check(program, randn(S), rounds=18)
    compare(kept["neuron"], kept["cpu"], "kept")


def test_view_of_a_dead_result_keeps_it() -> None:
    check(lambda x: ((x + 1) * 2)[3:5, ::2], randn(S))


def test_dead_results_are_not_written() -> None:
    size = 1 << 20
    x = torch.ones(size, device="neuron")

    def program() -> torch.Tensor:
        y = x + 1
        for _ in range(6):
            y = y * 1.5 - 1
        (x * 3).relu()  # nobody needs it
        return y

    for _ in range(4):
        y = program()
        settle()
        del y
    torch.neuron.empty_cache()
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    with launched() as found:
        y = program()
    assert torch.neuron.max_memory_allocated() - before < 2 * 4 * size
    assert sum(y.tolist()[:3]) == pytest.approx(3 * float(_expected(2.0)))
    assert len(loops(found)) == 1 and "relu" not in loops(found)[0]


def _expected(y: float) -> float:
    for _ in range(6):
        y = y * 1.5 - 1
    return y


# Around loops


def test_random_op_between_loops_keeps_the_stream() -> None:
    def program(x: torch.Tensor) -> Tensors:
        a = (x + 1) * 2
        b = torch.rand_like(x) * a
        x.mul_(2)
        torch.rand_like(x)  # draws
        c = torch.nn.functional.dropout(b + x, 0.4)
        x.uniform_()
        return [a - b, c, x + torch.randn_like(x)]

    check(program, randn(S))


def test_numbers_change_without_another_plan() -> None:
    number = iter(range(1000))

    def program(x: torch.Tensor) -> Tensors:
        n = next(number) // 2
        x.add_(0.1 * n).mul_(1 - n)
        return [
            torch.where(x > n - 3.5, x, -1.0 * n),
            x.clamp(-n, n + 0.5),
            torch.add(x, x, alpha=n),
            torch.add(x, x, alpha=0.5 * n),
        ]

    check(program, randn(S), rounds=7)


def test_alpha_that_is_one_only_sometimes() -> None:
    alphas = iter([a for a in (1, 1, 1, 1, 2, 1, 0, 1, 1, 3, 3, 1) for _ in range(2)])

    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        alpha = next(alphas)
        return [torch.add(x, y, alpha=alpha), torch.sub(x, y, alpha=alpha), x.addcmul(x, y, value=alpha), x + y]

    check(program, randn(S, S), rounds=12)


def test_exponent_that_changes() -> None:
    exponents = iter([e for e in (2, 2, 2, 2, 3, 2, 0.5, -0.5, 0, 1, -1, 7.5, 2) for _ in range(2)])

    def program(x: torch.Tensor) -> Tensors:
        exponent = next(exponents)
        return [x.abs().pow(exponent) + 1, x * 2]

    check(program, randn(S), rounds=13)


@pytest.mark.parametrize("shape", [(100003,), (300, 401), (257, 256)])
def test_threads_change_between_launches(shape: tuple[int, ...]) -> None:
    threads = iter([1, 2, 2, 1, 2, 1, 1, 2, 2])

    def program(x: torch.Tensor, row: torch.Tensor) -> Tensors:
        y = (x * 2 + row).sigmoid()
        z = torch.maximum(y, x).sum(-1)
        return [y, torch.nn.functional.silu(x), z, y.t().exp() if y.dim() == 2 else y.exp()]

    def inputs() -> Tensors:
        torch.set_num_threads(next(threads))
        return randn(shape, shape[-1:])()

    check(program, inputs, rounds=9)


def test_region_of_many_ops() -> None:
    config.max_region_ops = 65536

    def program(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        for i in range(220):
            x.mul_(0.9).add_(y, alpha=0.1)
            y = (y - x).tanh()
            if i % 40 == 39:
                y = y + x.sum(0)
        return [y]

    found = check(program, randn((9, 8), (9, 8)))
    assert max(len(region["ops"]) for region in found) > 512


def test_region_of_many_independent_ops() -> None:
    config.max_region_ops = 65536

    def program(*inputs: torch.Tensor) -> Tensors:
        made = []
        for a in inputs:
            for b in inputs:
                made.append((a + b) * a)
        return [*made, *(sum(made[i::20]) for i in range(20))]

    check(program, randn(*[(3, 5)] * 18), rounds=4)


OPTIMIZERS = {
    "sgd": lambda p, foreach: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, foreach=foreach),
    "nesterov": lambda p, foreach: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=foreach),
    "adam": lambda p, foreach: torch.optim.Adam(p, lr=1e-2, foreach=foreach),
    "amsgrad": lambda p, foreach: torch.optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=1e-2, foreach=foreach),
    "adamw": lambda p, foreach: torch.optim.AdamW(p, lr=1e-2, foreach=foreach),
    "rmsprop": lambda p, foreach: torch.optim.RMSprop(p, lr=1e-2, momentum=0.5, centered=True, foreach=foreach),
}


@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "single"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_over_many_small_tensors(name: str, foreach: bool) -> None:
    shapes = [((i * 7) % 13 + 1, (i * 5) % 17 + 1) if i % 3 else (i % 29 + 1,) for i in range(200)]
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    parameters = {d: [torch.nn.Parameter(t.to(d, copy=True)) for t in start] for d in ("cpu", "neuron")}
    optimizers = {d: OPTIMIZERS[name](p, foreach) for d, p in parameters.items()}
    schedules = {d: torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for d, o in optimizers.items()}
    with no_refusals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(6):
            grads = [torch.randn(shape, generator=generator) for shape in shapes]
            for device in ("cpu", "neuron"):
                for p, grad in zip(parameters[device], grads, strict=True):
                    p.grad = grad.to(device, copy=True)
                adaptive_eager.flush()
                with launched() as found:
                    optimizers[device].step()
                schedules[device].step()
            compare([p.detach() for p in parameters["neuron"]], [p.detach() for p in parameters["cpu"]], name)
            settle()
    assert len(loops(found)) > 0


# What fails


def test_loop_that_finds_no_memory_harms_nothing_else(little_memory: Callable[[], None]) -> None:
    x, big = torch.ones(8, device="neuron"), torch.ones(1 << 20, device="neuron")

    def program() -> dict[str, torch.Tensor]:
        before = (x * 3 + 1).relu()
        failed = big * 2 + 1
        needing = failed[:8] + x
        big.add_(1)
        after = (before - 1) * 2
        return {"before": before, "failed": failed, "needing": needing, "after": after}

    for _ in range(4):
        result = program()
        settle()
        del result
    little_memory()
    result = program()
    with pytest.raises((torch.OutOfMemoryError, adaptive_eager.AdaptiveEagerError), match="out of memory"):
        adaptive_eager.flush()
    for name in ("failed", "needing"):
        with pytest.raises(torch.OutOfMemoryError, match="failed when its recorded region ran"):
            result[name].tolist()
    assert result["before"].tolist() == [4.0] * 8
    assert result["after"].tolist() == [6.0] * 8
    _native.lib.ae_memory_set_limit(0)
    assert (x + 1).tolist() == [2.0] * 8
    again = program()
    assert again["needing"].tolist()[0] == again["failed"].tolist()[0] + 1
    assert big.tolist()[:3] == [7.0] * 3  # what shares a loop with the op that failed


def test_first_comparison_of_a_loop_needs_no_memory_of_its_own(little_memory: Callable[[], None]) -> None:
    big = torch.ones(1 << 19, device="neuron")
    with forced(compare=1):
        forget()
        result = (big * 5).add_(1)  # its loop is compiled, and not launched
        settle()
        del result
        little_memory()
        result = (big * 5).add_(1)
        assert result.tolist()[-1] == 6.0


def test_temporaries_that_find_no_memory_harm_nothing_else(little_memory: Callable[[], None]) -> None:
    x, big = torch.ones(8, device="neuron"), torch.ones(1 << 20, device="neuron")

    def program() -> Tensors:
        small = (x * 3 + 1).relu()
        return [small, (big * 2).cumsum(0)[:4].clone()]

    for _ in range(3):
        results = program()
        settle()
        del results
    little_memory()
    small, failed = program()
    assert small.tolist() == [4.0] * 8
    with pytest.raises(torch.OutOfMemoryError, match=r"aten::\w+(\.\w+)? failed when its recorded region ran"):
        failed.tolist()
    _native.lib.ae_memory_set_limit(0)
    assert program()[1].tolist() == [2.0, 4.0, 6.0, 8.0]


def test_poisoned_input_in_the_middle_of_loops(little_memory: Callable[[], None]) -> None:
    x, y, big = torch.ones(8, device="neuron"), torch.ones(8, device="neuron"), torch.ones(1 << 20, device="neuron")

    def program() -> Tensors:
        good = (x + 1) * 2
        wide = big.cumsum(0)  # the opaque op in the middle finds no memory
        bad = wide[:8] * 2
        spoiled = (good + bad).relu()
        y.add_(spoiled)
        rest = (good - x) * 3
        return [good, rest, spoiled, wide]

    for _ in range(4):
        results = program()
        settle()
        del results
    little_memory()
    good, rest, spoiled, wide = program()
    with pytest.raises((torch.OutOfMemoryError, adaptive_eager.AdaptiveEagerError), match="out of memory"):
        adaptive_eager.flush()
    assert good.tolist() == [4.0] * 8
    assert rest.tolist() == [9.0] * 8
    for poisoned in (spoiled, wide, y):
        with pytest.raises(torch.OutOfMemoryError, match="failed when its recorded region ran"):
            poisoned.tolist()
