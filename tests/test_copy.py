"""Copies within the device, to it and from it; every way in which a program can look at a value."""

import copy
import ctypes
import io
import pickle
from collections.abc import Callable

import pytest
import torch

import adaptive_eager
from adaptive_eager import flush, reset_stats, stats

Agree = Callable[..., None]

pytestmark = pytest.mark.usefixtures("reset", "mode")


def pending() -> torch.Tensor:
    return torch.arange(4, device="neuron") * 3 + 1  # 1 4 7 10


def seven() -> torch.Tensor:
    return torch.ones((), device="neuron") * 6 + 1


def saved(tensor: torch.Tensor, **options: object) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    loaded: torch.Tensor = torch.load(file, **options)
    return loaded


READS: dict[str, Callable[[], bool]] = {
    "tolist": lambda: pending().tolist() == [1, 4, 7, 10],
    "numpy": lambda: pending().cpu().numpy().tolist() == [1, 4, 7, 10],
    "to": lambda: pending().to("cpu").tolist() == [1, 4, 7, 10],
    "to, not blocking": lambda: pending().to("cpu", non_blocking=True).tolist() == [1, 4, 7, 10],
    "to another dtype": lambda: pending().to("cpu", torch.float64).tolist() == [1.0, 4.0, 7.0, 10.0],
    "item": lambda: seven().item() == 7.0,
    "float, int, complex": lambda: (float(seven()), int(seven()), complex(seven())) == (7.0, 7, 7 + 0j),
    "bool": lambda: bool(seven() > 6) and not bool(seven() > 8),
    "index": lambda: list(range(9))[seven().long()] == 7,
    "format": lambda: f"{seven():.1f}" == "7.0",
    "repr": lambda: "10" in repr(pending()),
    "iteration": lambda: [int(value) for value in pending()] == [1, 4, 7, 10],
    "in": lambda: 7 in pending() and 8 not in pending(),
    "equal": lambda: torch.equal(pending(), pending()) and not torch.equal(pending(), pending() + 1),
    "allclose": lambda: torch.allclose(seven(), seven()),
    "pickle": lambda: pickle.loads(pickle.dumps(pending())).tolist() == [1, 4, 7, 10],
    "deepcopy": lambda: copy.deepcopy(pending()).tolist() == [1, 4, 7, 10],
    "save": lambda: saved(pending()).tolist() == [1, 4, 7, 10],
    "save, load on the CPU": lambda: saved(pending(), map_location="cpu").device.type == "cpu",
    "size": lambda: torch.zeros(int(seven()), device="neuron").shape == (7,),
    "max": lambda: int(max(pending())) == 10,
    "storage": lambda: pending().untyped_storage().cpu()[8] == 4,
}


@pytest.mark.parametrize("name", READS)
def test_reading_gives_the_finished_value(name: str) -> None:
    for _ in range(3):
        assert READS[name]()


def test_address_is_of_finished_memory_and_stays() -> None:
    for _ in range(3):
        x = torch.arange(6.0, device="neuron") * 3
        memory = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))
        assert memory[5] == 15
        x.add_(1)
        assert x[5].item() == memory[5] == 16
        before = x * 2
        flush()
        memory[5] = 99
        assert (x + 1)[5].item() == 100 and before[5].item() == 32


def test_copy_to_the_host_does_not_follow_later_writes() -> None:
    for _ in range(3):
        host = torch.empty(4, dtype=torch.int64)
        x = pending()
        host.copy_(x)
        other = x.to("cpu", copy=True)
        x.zero_()
        assert host.tolist() == other.tolist() == [1, 4, 7, 10]


def test_copy_to_the_device_does_not_follow_later_writes() -> None:
    for non_blocking in (False, True):
        host = torch.arange(4.0).pin_memory() if non_blocking else torch.arange(4.0)
        x = host.to("neuron", non_blocking=non_blocking)
        y = x + 1
        host.fill_(9)
        assert x.tolist() == [0, 1, 2, 3] and y.tolist() == [1, 2, 3, 4]


def test_host_copy_into_a_pending_tensor_keeps_its_place(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.zeros(4, device=device)
        before = x + 1
        x.copy_(torch.arange(4.0))
        after = x * 2
        x[1:3] = torch.tensor([7.0, 8.0])
        return [before, after, x]

    agree(program)


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool,
          torch.complex64, torch.float8_e4m3fn]  # fmt: skip


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_copies_convert_as_on_the_cpu(source: torch.dtype, agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.tensor([0.0, 1.0, 2.5, 3.25, 100.0, 127.0]).to(source)
        results = []
        for target in DTYPES:
            if source.is_complex and not target.is_complex:
                continue
            results += [
                x.to(device).to(target),
                x.to(device, target),
                torch.empty(6, dtype=target, device=device).copy_(x),
            ]
        return results

    agree(program, rounds=3)


def test_copies_between_layouts(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        host = torch.arange(24.0).view(4, 6)
        results = []
        for view in (
            lambda t: t,
            lambda t: t.t(),
            lambda t: t[::2, 1::2],
            lambda t: t[1].expand(4, 6),
            lambda t: t[:0],
            lambda t: t[2, 3],
        ):
            source = view(host.to(device))
            results += [source, source.clone(), source.contiguous(), view(host).to(device), source.cpu()]
            target = torch.zeros(4, 6, device=device)
            target.t().copy_(source.t()) if source.shape == (4, 6) else target[:2, :2].copy_(source.sum())
            results.append(target)
        return results

    agree(program, rounds=3)


def test_copy_within_the_device_is_recorded() -> None:
    adaptive_eager.set_mode("adaptive")
    x, y = torch.ones(4, device="neuron"), torch.zeros(4, dtype=torch.float64, device="neuron")
    for _ in range(3):
        y.copy_(x)
        x.clone()
        x.double()
    flush()
    reset_stats()
    y.copy_(x)
    x.clone()
    x.double()
    assert (stats().ops_recorded, stats().ops_direct, stats().launches) == (3, 0, 0)


def test_overlapping_copy_is_refused_and_copy_onto_itself_is_not() -> None:
    for _ in range(3):
        x = torch.arange(6.0, device="neuron")
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].copy_(x[:-1])
        x.copy_(x)
        x[2:4].copy_(x[2:4])
        assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_sharing_survives_saving(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        base = torch.arange(12.0, device=device).view(3, 4) * 2
        results = []
        for kept in (saved([base, base[1], base.t()]), copy.deepcopy([base, base[1], base.t()])):
            kept[1].fill_(-1)
            results += kept
        return [*results, base]

    agree(program)


def test_copy_to_a_foreign_device_is_refused() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(2, device="meta").to("neuron")
    assert torch.ones(2, 3, device="neuron").to("meta").shape == (2, 3)
