"""The device, its storages, pinned memory and processes."""

import os
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import adaptive_eager
from adaptive_eager import _native


def test_device_is_the_current_accelerator() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch.accelerator.device_count() == torch.neuron.device_count() == 1
    assert torch.neuron.is_available() and torch.neuron.is_initialized()
    assert torch.neuron.current_device() == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.neuron.set_device(3),
        lambda: torch.neuron.device("neuron:3"),
        lambda: torch.accelerator.set_device_index(3),
        lambda: torch.neuron.memory_allocated(3),
        lambda: torch.Generator("neuron:3"),
        lambda: torch.Stream("neuron:3"),
        lambda: torch.empty(1, device="neuron:3"),
    ],
)
def test_bad_index_is_an_error_that_names_index_and_count(use) -> None:
    with pytest.raises(RuntimeError, match=r"invalid device index 3, expected 0: there is 1 device"):
        use()


def test_another_devices_name_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected a neuron device, but got: cpu"):
        torch.neuron.set_device("cpu")


def test_device_contexts_nest() -> None:
    with torch.neuron.device(0), torch.neuron.device(None), torch.neuron.device("neuron"):
        assert torch.empty(1, device="neuron").device == torch.device("neuron:0")
    with torch.neuron.device_of(torch.empty(1)):
        assert torch.neuron.current_device() == 0


def test_properties_describe_the_host() -> None:
    properties = torch.neuron.get_device_properties()
    free, total = torch.neuron.mem_get_info()
    assert properties.name == torch.neuron.get_device_name(0)
    assert properties.total_memory == total >= free > 0
    assert properties.multi_processor_count == len(os.sched_getaffinity(0))


def test_exported_names_exist() -> None:
    for name in torch.neuron.__all__:
        assert hasattr(torch.neuron, name), name


def test_empty_tensor_gets_memory_when_its_address_is_asked_for() -> None:
    before = torch.neuron.memory_allocated()
    x = torch.empty(100_000, device="neuron")
    assert torch.neuron.memory_allocated() == before
    address = x.data_ptr()
    assert address % 64 == 0
    assert torch.neuron.memory_allocated() >= before + 400_000
    assert x.data_ptr() == address


def test_storage_address_is_where_the_tensors_data_is() -> None:
    x = torch.arange(8.0, device="neuron")
    assert _native.lib.ae_storage_address(x.untyped_storage()._cdata) == x.data_ptr()


def test_storage_address_of_another_device_is_an_error() -> None:
    assert _native.lib.ae_storage_address(torch.ones(2).untyped_storage()._cdata) == 0
    assert "expected a storage of the neuron device" in _native.text(_native.lib.ae_last_error())


def test_storage_of_no_bytes_has_address_zero_and_no_error() -> None:
    assert _native.lib.ae_storage_address(torch.empty(0, device="neuron").untyped_storage()._cdata) == 0
    assert _native.text(_native.lib.ae_last_error()) == ""


def test_resized_storage_keeps_what_fits() -> None:
    x = torch.arange(100, dtype=torch.uint8).to("neuron")
    storage = x.untyped_storage()
    storage.resize_(50)
    assert storage.nbytes() == 50
    storage.resize_(200)
    assert storage.nbytes() == 200
    kept = torch.empty(0, dtype=torch.uint8, device="neuron").set_(storage, 0, (50,), (1,))
    assert torch.equal(kept.cpu(), torch.arange(50, dtype=torch.uint8))


def test_storage_resized_to_nothing_gives_its_memory_back() -> None:
    x = torch.empty(100_000, dtype=torch.uint8, device="neuron")
    x.data_ptr()
    before = torch.neuron.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch.neuron.memory_allocated() <= before - 100_000
    x.untyped_storage().resize_(100_000)
    x.fill_(7)
    assert torch.equal(x.cpu(), torch.full((100_000,), 7, dtype=torch.uint8))


def test_resize_sees_recorded_writes() -> None:
    with adaptive_eager.using_mode("adaptive"):
        for _ in range(4):
            x = torch.zeros(64, device="neuron")
            x.add_(3)
            x.untyped_storage().resize_(512)
            assert torch.equal(x.cpu(), torch.full((64,), 3.0))


def test_data_ptr_sees_recorded_writes() -> None:
    import ctypes

    with adaptive_eager.using_mode("adaptive"):
        x = torch.zeros(4, device="neuron")
        for step in range(1, 6):
            x.add_(1)
            assert list((ctypes.c_float * 4).from_address(x.data_ptr())) == [float(step)] * 4


def test_only_pinned_memory_is_pinned() -> None:
    pinned = torch.ones(1000).pin_memory()
    assert pinned.is_pinned() and pinned[10:20].is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert not torch.ones(1000).is_pinned()
    assert not torch.ones(1000, device="neuron").is_pinned()
    assert torch.equal(pinned.to("neuron", non_blocking=True).cpu(), torch.ones(1000))


def test_data_loader_pins_its_batches() -> None:
    data = TensorDataset(torch.arange(12.0).reshape(6, 2))
    batches = [batch for (batch,) in DataLoader(data, batch_size=3, pin_memory=True)]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.equal(torch.cat(batches), data.tensors[0])


def _squares(index: int) -> torch.Tensor:
    return (torch.full((3,), float(index), device="neuron") ** 2).cpu()


class _OnDevice(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return _squares(index)


def test_data_loader_workers_use_the_device() -> None:
    loader = DataLoader(_OnDevice(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), torch.stack([_squares(i) for i in range(6)]))


def _in_child(work) -> object:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        result = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return pickle.loads(result)


def test_child_process_goes_on_with_its_copy() -> None:
    with adaptive_eager.using_mode("adaptive"):
        x = torch.zeros(4, device="neuron")
        for _ in range(4):
            x.add_(1)  # the last ones are still recorded
        assert not torch.neuron._is_in_bad_fork()
        assert _in_child(lambda: x.mul_(10).tolist()) == [40.0] * 4
        assert x.tolist() == [4.0] * 4
