"""What belongs to the key of a call, what is a parameter, and what cannot be recorded."""

import pytest
import torch

import adaptive_eager


@pytest.fixture(autouse=True)
def adaptive():
    with adaptive_eager.using_mode("adaptive"):
        yield


def test_written_host_number_receives_the_result() -> None:
    for step in range(4):
        total = torch.tensor(1.0)
        total += torch.full((), float(step), device="neuron")
        assert total.item() == 1.0 + step


def test_integer_results_of_gathering_ops_go_into_out(assert_same) -> None:
    a = torch.arange(4, device="neuron")
    out = torch.empty(8, dtype=torch.int64, device="neuron")
    for _ in range(4):
        torch.cat([a, a + 1], out=out)
        assert_same(out.cpu(), torch.tensor([0, 1, 2, 3, 1, 2, 3, 4]))


def test_default_dtype_changed_in_eager_mode_is_seen() -> None:
    a = torch.arange(1, 4, device="neuron")
    for _ in range(3):
        assert (a / 2).dtype == torch.float32
    adaptive_eager.set_mode("eager")
    torch.set_default_dtype(torch.float64)
    try:
        adaptive_eager.set_mode("adaptive")
        assert (a / 2).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (lambda x: torch.celu(x, 1.0), lambda x: torch.celu(x, 0.0)),
        (lambda x: torch.nn.functional.softshrink(x, 0.5), lambda x: torch.nn.functional.softshrink(x, -0.5)),
        (lambda x: x.fill_(2 + 0j), lambda x: x.fill_(2 + 1j)),
        (lambda x: x.half().fill_(2.0), lambda x: x.half().fill_(1e30)),
        (
            lambda x: torch.bernoulli(x * 0, out=torch.empty_like(x)),
            lambda x: torch.bernoulli(x + 9, out=torch.empty_like(x)),
        ),
    ],
    ids=["celu", "softshrink", "complex number", "overflow", "bernoulli"],
)
def test_number_that_makes_an_op_fail_is_refused_at_the_call(good, bad) -> None:
    for _ in range(3):
        good(torch.ones(3, device="neuron"))
    with pytest.raises(RuntimeError):
        bad(torch.ones(3, device="neuron"))


def test_operands_that_only_a_region_keeps_are_bounded() -> None:
    limit = adaptive_eager.config.max_pending_bytes
    adaptive_eager.config.max_pending_bytes = 1 << 20
    try:
        total = torch.zeros(1 << 16, device="neuron")
        most = 0
        for _ in range(60):
            total.add_(torch.ones(1 << 16).to("neuron"))
            most = max(most, torch.neuron.memory_allocated())
        assert most < torch.neuron.memory_allocated() + (4 << 20)
        assert total[0].item() == 60
    finally:
        adaptive_eager.config.max_pending_bytes = limit


def test_custom_op_may_keep_its_argument(assert_same) -> None:
    kept = []

    @torch.library.custom_op("adaptive_eager_test::keep", mutates_args=(), device_types="cpu")
    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x + 1

    x = torch.ones(1 << 12, device="neuron")
    keep(x)
    del x
    filler = [torch.zeros(1 << 12, device="neuron").add_(7) for _ in range(8)]
    adaptive_eager.flush()
    assert_same(kept[0].cpu(), torch.ones(1 << 12))
    del filler
