"""Random numbers: the CPU's, from a generator of the device's own."""

import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import adaptive_eager


def cpu_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=["eager", "adaptive"], autouse=True)
def mode(request: pytest.FixtureRequest):
    with adaptive_eager.using_mode(request.param):
        yield request.param


def test_manual_seed_gives_the_cpus_numbers() -> None:
    torch.manual_seed(5)
    got = torch.randn(100, device="neuron")
    assert torch.equal(got.cpu(), torch.randn(100, generator=cpu_generator(5)))


def test_module_seed_gives_the_cpus_numbers() -> None:
    for _ in range(4):
        torch.neuron.manual_seed(6)
        got = torch.randn(100, device="neuron")
        assert torch.equal(got.cpu(), torch.randn(100, generator=cpu_generator(6)))


def test_the_devices_stream_is_not_the_cpus() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    torch.randn(100, device="neuron").cpu()
    assert torch.equal(torch.get_rng_state(), before)


def test_explicit_generator_draws_the_cpus_numbers() -> None:
    generator = torch.Generator("neuron").manual_seed(8)
    reference = cpu_generator(8)
    for _ in range(4):
        got = torch.randn(100, generator=generator, device="neuron")
        assert torch.equal(got.cpu(), torch.randn(100, generator=reference))


def test_new_generators_start_as_the_cpus_do() -> None:
    generator = torch.Generator("neuron")
    assert generator.device == torch.device("neuron:0")
    assert generator.initial_seed() == torch.Generator().initial_seed()
    assert torch.equal(generator.get_state(), torch.Generator().get_state())


def test_state_goes_to_a_cpu_generator_and_back() -> None:
    ours, cpu = torch.Generator("neuron").manual_seed(9), torch.Generator()
    torch.randn(33, generator=ours, device="neuron")
    cpu.set_state(ours.get_state())
    assert torch.equal(torch.randn(40, generator=cpu), torch.randn(40, generator=ours, device="neuron").cpu())
    ours.set_state(cpu.get_state())
    assert torch.equal(torch.randn(40, generator=ours, device="neuron").cpu(), torch.randn(40, generator=cpu))


def test_state_is_read_after_the_draws_before_it() -> None:
    reference = cpu_generator(10)
    torch.neuron.manual_seed(10)
    for _ in range(5):
        torch.randn(50, device="neuron")
        torch.randn(50, generator=reference)
        assert torch.equal(torch.neuron.get_rng_state(), reference.get_state())


def test_state_is_set_after_the_draws_before_it() -> None:
    start = cpu_generator(11).get_state()
    expected = torch.randn(50, generator=cpu_generator(11))
    for _ in range(5):
        torch.neuron.set_rng_state(start)
        first = torch.randn(50, device="neuron")
        torch.neuron.set_rng_state(start)
        second = torch.randn(50, device="neuron")
        assert torch.equal(first.cpu(), expected)
        assert torch.equal(second.cpu(), expected)


def test_all_states_are_read_and_set() -> None:
    states = torch.neuron.get_rng_state_all()
    first = torch.randn(9, device="neuron").cpu()
    torch.neuron.set_rng_state_all(states)
    assert torch.equal(torch.randn(9, device="neuron").cpu(), first)


def test_bad_state_is_refused() -> None:
    with pytest.raises(TypeError, match="RNG state must be"):
        torch.neuron.set_rng_state(torch.zeros(3))


def test_initial_seed_is_the_last_seed() -> None:
    torch.neuron.manual_seed_all(12)
    assert torch.neuron.initial_seed() == 12
    torch.neuron.seed()
    assert torch.neuron.initial_seed() != 12


def test_clone_goes_on_by_itself() -> None:
    original = torch.Generator("neuron").manual_seed(13)
    torch.randn(17, generator=original, device="neuron")
    copy = original.clone_state()
    first = torch.randn(20, generator=original, device="neuron").cpu()
    assert torch.equal(torch.randn(20, generator=copy, device="neuron").cpu(), first)
    assert not torch.equal(torch.randn(20, generator=copy, device="neuron").cpu(), first)


def test_graphsafe_state_is_shared() -> None:
    original, other = torch.Generator("neuron").manual_seed(14), torch.Generator("neuron")
    other.graphsafe_set_state(original.graphsafe_get_state())
    reference = cpu_generator(14)
    for generator in (original, other, original):
        got = torch.randn(20, generator=generator, device="neuron").cpu()
        assert torch.equal(got, torch.randn(20, generator=reference))


def test_generator_survives_pickling() -> None:
    generator = torch.Generator("neuron").manual_seed(15)
    torch.randn(7, generator=generator, device="neuron")
    copy = pickle.loads(pickle.dumps(generator))
    assert copy.device == generator.device and copy.initial_seed() == 15
    assert torch.equal(copy.get_state(), generator.get_state())


def test_generator_has_no_offset() -> None:
    generator = torch.Generator("neuron")
    assert generator.get_offset() == 0
    with pytest.raises(RuntimeError, match="expected 0, got 4"):
        generator.set_offset(4)


def test_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator but found 'cpu'"):
        torch.randn(3, device="neuron", generator=torch.Generator())


def test_fork_rng_restores_the_devices_state() -> None:
    before = torch.neuron.get_rng_state()
    with torch.random.fork_rng():
        torch.neuron.manual_seed(16)
        torch.randn(3, device="neuron")
    assert torch.equal(torch.neuron.get_rng_state(), before)


def test_default_generator_is_one_object_with_the_devices_state() -> None:
    (default,) = torch.neuron.default_generators
    torch.manual_seed(17)
    assert default.device == torch.device("neuron:0") and default.initial_seed() == 17
    got = torch.randn(10, device="neuron", generator=default).cpu()
    assert torch.equal(got, torch.randn(10, generator=cpu_generator(17)))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_draws_the_same_dropout_again(use_reentrant: bool) -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    x = torch.ones(200, device="neuron", requires_grad=True)
    torch.manual_seed(18)
    out = checkpoint(masked, x, use_reentrant=use_reentrant)
    out.sum().backward()
    assert torch.equal(out.detach().cpu(), x.grad.cpu())
