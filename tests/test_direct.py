"""Ops that run by themselves: each with its reason, after what they depend on and nothing else."""

from collections.abc import Callable

import pytest
import torch

import adaptive_eager
from adaptive_eager import flush, reset_stats, stats

Agree = Callable[..., None]


@pytest.fixture(autouse=True)
def adaptive(reset: None) -> None:
    adaptive_eager.set_mode("adaptive")


def x() -> torch.Tensor:
    return torch.arange(1.0, 7.0, device="neuron")


def pending_index() -> torch.Tensor:
    return torch.arange(6, device="neuron") * 1


CALLS: dict[str, tuple[str, Callable[[], object]]] = {
    "shape depends on values": ("dynamic_shape", lambda: x().nonzero()),
    "boolean index": ("dynamic_shape", lambda: x()[x() > 2]),
    "value": ("returns_value", lambda: x().sum().item()),
    "comparison": ("returns_value", lambda: torch.equal(x(), x() + 1)),
    "probabilities": ("unchecked_index", lambda: torch.multinomial(x(), 2)),
    "computed index": ("unchecked_index", lambda: x().index_select(0, pending_index())),
    "factorisation": ("unchecked_index", lambda: torch.linalg.cholesky(torch.eye(2, device="neuron") * 2)),
    "to the device": ("host_copy", lambda: torch.ones(3).to("neuron")),
    "resized output": ("resize", lambda: torch.add(x(), 1, out=torch.empty(0, device="neuron"))),
    "sparse": ("tensor_kind", lambda: torch.eye(3, device="neuron").to_sparse() * 2),
    "assertion": ("side_effect", lambda: torch._assert_async(x()[0])),
}
REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "index out of range": ("bad_value", lambda: torch.embedding(x().view(3, 2), torch.tensor([3], device="neuron"))),
    "host operand": ("host_operand", lambda: x() + torch.ones(6)),
}


@pytest.mark.parametrize("name", CALLS)
def test_op_that_cannot_be_recorded_runs_directly(name: str) -> None:
    reason, call = CALLS[name]
    for _ in range(3):
        flush()
        reset_stats()
        call()
    found = stats()
    assert found.direct_reasons[reason] >= 1
    assert found.direct_reasons["first_seen"] == 0
    assert found.ops_direct == sum(found.direct_reasons.values())


@pytest.mark.parametrize("name", REFUSED)
def test_op_that_will_fail_runs_directly_to_raise_at_its_call(name: str) -> None:
    reason, call = REFUSED[name]
    for _ in range(3):
        reset_stats()
        with pytest.raises((RuntimeError, IndexError)):
            call()
    assert stats().direct_reasons[reason] == 1


def test_integer_index_is_recorded() -> None:
    index = torch.tensor([2, 0], device="neuron")
    for _ in range(3):
        flush()
        reset_stats()
        x()[index]
    assert stats().ops_direct == 0


def test_index_whose_values_are_known_is_recorded(assert_same: Callable[..., None]) -> None:
    source, index = x(), torch.tensor([2, 0, 5], device="neuron")
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: source.index_select(0, index),
        lambda: source.gather(0, index),
        lambda: torch.embedding(source.view(6, 1), index),
        lambda: source.index_select(0, torch.arange(3, device="neuron")),
        lambda: torch.embedding(source.view(6, 1), source.argmax(0, keepdim=True)),
        lambda: torch.embedding(source.view(6, 1), torch.cat([index, index])[1:].clone()),
    ]
    for call in calls:
        for _ in range(3):
            flush()
            reset_stats()
            found = call()
        assert stats().ops_direct == 0
        flush()
        with adaptive_eager.using_mode("eager"):
            assert_same(found, call())


def test_direct_op_leaves_unrelated_work_pending() -> None:
    for _ in range(2):
        x() * 2  # known from the second time on
    for _ in range(3):
        flush()
        y, other = x(), torch.tensor([1, 0, 2], device="neuron")
        z = y * 2
        before = stats().pending_ops
        assert before > 0
        other.nonzero()
        assert stats().pending_ops >= before
    assert z.tolist() == [2, 4, 6, 8, 10, 12]


def test_direct_op_comes_after_what_it_needs(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        y = torch.arange(6.0, device=device)
        y.mul_(2)
        found = y.nonzero()
        y[1:].sub_(2)
        return [found, y.nonzero(), y.masked_select(y > 2), y.unique(), torch.bincount(y.long().clamp(0))]

    agree(program)


def test_values_decide_branches_each_time(agree: Agree) -> None:
    def program(device: str) -> list[object]:
        results: list[object] = []
        for n in (1, 6, 7, 27):
            value, steps = torch.tensor(n, device=device), 0
            while value != 1 and steps < 20:
                value = value // 2 if value % 2 == 0 else value * 3 + 1
                steps += 1
            results += [value, steps]
        return results

    agree(program)


def test_custom_op_runs_on_the_kernel_of_its_author(agree: Agree) -> None:
    def twice_plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2) + y

    def increment_(x: torch.Tensor) -> None:
        x.add_(1)

    library = torch.library.Library("adaptive_eager_test", "FRAGMENT")
    try:
        library.define("twice_plus(Tensor x, Tensor y) -> Tensor")
        library.define("increment_(Tensor(a!) x) -> ()")
        library.impl("twice_plus", twice_plus, "CPU")
        library.impl("increment_", increment_, "CPU")
        ops = torch.ops.adaptive_eager_test

        def program(device: str) -> list[torch.Tensor]:
            y = torch.arange(4.0, device=device) + 1
            z = ops.twice_plus(y, y * 3)
            one = y[:1] * 2
            ops.increment_(one)
            return [z, z + 1, one, y]

        agree(program)
        assert stats().direct_reasons["no_kernel"] > 0
    finally:
        library._destroy()


def test_blocking_runs_every_op_at_its_call(python: Callable[..., object]) -> None:
    code = (
        "import torch, adaptive_eager as ae\n"
        "x = torch.ones(4, device='neuron')\n"
        "for _ in range(3): x = x * 2 + 1\n"
        "s = ae.stats(); print(s.ops_recorded, s.pending_ops, s.direct_reasons['blocking'] == s.launches, x.tolist())"
    )
    done = python("-c", code, NEURON_EAGER="adaptive", NEURON_LAUNCH_BLOCKING="1")
    assert done.stdout.split("\n")[0] == "0 0 True [15.0, 15.0, 15.0, 15.0]", done.stderr


def test_output_that_a_failing_op_resized_stays_resized(mode: str) -> None:
    sizes = []
    for device in ("cpu", "neuron"):
        out = torch.empty(0, device=device)
        with pytest.raises(IndexError):
            torch.index_select(torch.ones(3, device=device), 0, torch.tensor([0, 9], device=device), out=out)
        sizes.append(out.shape)
    assert sizes == [(2,), (2,)]
