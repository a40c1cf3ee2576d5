"""What the Python-level patches promise: settings, storages, DLPack, moving modules, other processes."""

import copy
import io
import pickle

import numpy
import pytest
import torch
import torch.multiprocessing
from torch.utils.dlpack import DLDeviceType

import adaptive_eager
from adaptive_eager._patches import SETTERS

pytestmark = pytest.mark.usefixtures("reset")


def pending() -> torch.Tensor:
    """[1, 4, 7, 10], not computed yet in adaptive mode."""
    for _ in range(3):
        x = torch.arange(4, device="neuron") * 3 + 1
    return x


SETTINGS = {
    "num_threads": lambda: torch.set_num_threads(torch.get_num_threads()),
    "deterministic": lambda: torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled()),
    "fill": lambda: setattr(
        torch.utils.deterministic,
        "fill_uninitialized_memory",
        torch.utils.deterministic.fill_uninitialized_memory,
    ),
    "default_dtype": lambda: torch.set_default_dtype(torch.get_default_dtype()),
    "flush_denormal": lambda: torch.set_flush_denormal(False),
    "matmul_precision": lambda: torch.set_float32_matmul_precision(torch.get_float32_matmul_precision()),
    "mkldnn_enabled": lambda: setattr(torch.backends.mkldnn, "enabled", torch.backends.mkldnn.enabled),
    "mkldnn_flags": lambda: torch.backends.mkldnn.set_flags(torch.backends.mkldnn.enabled),
}


@pytest.mark.parametrize("change", SETTINGS.values(), ids=SETTINGS)
def test_setting_launches_what_was_recorded_before_it(change, monkeypatch) -> None:
    # torch's own test helpers, once imported, allow these settings within a context only
    monkeypatch.setitem(torch.backends.ContextProp.__set__.__globals__, "flags_frozen", lambda: False)
    with adaptive_eager.using_mode("adaptive"):
        x = pending()
        assert adaptive_eager.stats().pending_ops > 0
        change()
        assert adaptive_eager.stats().pending_ops == 0
    assert x.tolist() == [1, 4, 7, 10]


def test_setters_return_what_they_did() -> None:
    assert torch.set_flush_denormal(False) in (True, False)
    assert all(callable(getattr(owner, name)) for owner, name, _ in SETTERS)


READS = {
    "data_ptr": lambda s: s.data_ptr() != 0,
    "item": lambda s: s[8] == 4,
    "clone": lambda s: s.clone()[8] == 4,
    "cpu": lambda s: s.cpu()[8] == 4,
    "copy_": lambda s: torch.UntypedStorage(s.nbytes()).copy_(s)[8] == 4,
    "deepcopy": lambda s: copy.deepcopy(s)[8] == 4,
    "tolist": lambda s: s.tolist()[8] == 4,
    "fill_": lambda s: s.fill_(3)[8] == 3,
    "setitem": lambda s: s.__setitem__(8, 9) or s[8] == 9,
    "resize_": lambda s: s.resize_(64)[8] == 4,
    "pickle": lambda s: (
        pickle.loads(pickle.dumps(torch.tensor([], dtype=torch.uint8, device="neuron").set_(s)))[8] == 4
    ),
    "file": lambda s: torch.load(save(torch.tensor([], dtype=torch.uint8, device="neuron").set_(s)))[8] == 4,
}


def save(value: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_storage_holds_finished_values(mode, read) -> None:
    assert read(pending().untyped_storage())


def test_storage_is_read_back_from_a_file(mode, tmp_path) -> None:
    with open(tmp_path / "storage", "w+b") as file:
        pending().untyped_storage()._write_file(file, True, True, 8)
        file.seek(0)
        storage = torch.UntypedStorage(32, device="neuron")
        assert storage._set_from_file(file, None, True, 8) is storage and storage[8] == 4


def test_empty_storage_has_no_address() -> None:
    assert torch.empty(0, device="neuron").untyped_storage().data_ptr() == 0


def test_dlpack_exchanges_memory_on_the_device(mode) -> None:
    x = pending()
    y = torch.from_dlpack(x)
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert y.device == x.device and y.tolist() == [1, 4, 7, 10]
    y += 1
    assert x.tolist() == [2, 5, 8, 11]


def test_dlpack_exports_to_the_host_by_copy(mode) -> None:
    x = pending()
    host = torch.from_dlpack(x, device="cpu")
    assert host.device.type == "cpu" and host.tolist() == [1, 4, 7, 10]
    host += 1
    assert numpy.from_dlpack(x, device="cpu").tolist() == [1, 4, 7, 10]
    assert torch.from_dlpack(x.cpu()).tolist() == x.tolist() == [1, 4, 7, 10]


def test_dlpack_refuses_what_it_cannot_keep() -> None:
    with pytest.raises(BufferError, match="gradient"):
        torch.from_dlpack(torch.ones(2, device="neuron", requires_grad=True))
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(torch.ones(2, device="neuron"), device="cpu", copy=False)


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(6, 3)
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 6, bias=False))
        self.inner[0].weight = self.embedding.weight


def test_moved_parameters_stay_shared(mode) -> None:
    model = Tied().to("neuron")
    assert model.inner[0].weight is model.embedding.weight
    assert model.embedding.weight.is_neuron and len(list(model.parameters())) == 1
    assert model.cpu().inner[0].weight is model.embedding.weight


def test_moved_parameters_stay_shared_where_they_cannot_be_swapped(mode) -> None:
    model = Tied()
    graph = model.embedding.weight.sum()  # its backward holds the parameter
    model.to("neuron")
    assert model.inner[0].weight is model.embedding.weight
    graph.backward()


def test_optimizer_made_before_the_move_trains_what_was_moved(mode, assert_same) -> None:
    def trained(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.to(device)
        model(torch.ones(4, 3, device=device)).sum().backward()
        optimizer.step()
        return list(model.parameters())

    assert_same(trained("neuron"), trained("cpu"))


def test_moved_gradients_follow_their_parameters(mode) -> None:
    model = torch.nn.Linear(3, 2)
    model(torch.ones(4, 3)).sum().backward()
    expected = model.weight.grad.clone()
    model.to("neuron")
    assert model.weight.grad.is_neuron and torch.equal(model.weight.grad.cpu(), expected)


def test_moved_recurrent_module_uses_its_moved_weights(mode, assert_same) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.LSTM(3, 4), torch.randn(5, 2, 3)
    expected = model(x)[0]
    assert_same(model.to("neuron")(x.to("neuron"))[0], expected)


def double(queue, answers) -> None:
    answers.put(queue.get() * 2)
    queue.get()  # keep the shared memory of the answer until it was read


def test_tensor_is_sent_to_another_process_by_value() -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=double, args=(queue, answers))
    process.start()
    try:
        queue.put(torch.arange(3.0, device="neuron"))
        answer = answers.get(timeout=120)
        assert answer.is_neuron and answer.tolist() == [0, 2, 4]
        queue.put(None)
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()


def test_lazy_module_stays_lazy_when_moved() -> None:
    module = torch.nn.LazyLinear(3).to("neuron")
    assert module.has_uninitialized_params()
    assert module(torch.ones(2, 5, device="neuron")).shape == (2, 3)
    assert module.weight.device.type == "neuron"
    assert type(module.weight) is torch.nn.Parameter


def test_linear_cross_entropy_chooses_as_on_cpu() -> None:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    resolve = LinearCrossEntropyOptions._resolve_auto_acc_dtype
    assert resolve(torch.bfloat16, torch.device("neuron")) == resolve(torch.bfloat16, torch.device("cpu"))
