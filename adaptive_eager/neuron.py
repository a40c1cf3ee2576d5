"""`torch.neuron`: what torch.cuda users look for, with the same meanings. One device, whose memory is the host's."""

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple

import torch

from . import _native
from ._device import COUNT, NAME, Device, index_of
from ._memory import (
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from ._streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

# Initialization. torch.utils.checkpoint asks for the attribute.
_initialized = True


def is_available() -> bool:
    """Whether the device can be used; it can wherever this module exists."""
    return True


def is_initialized() -> bool:
    """Whether the device is ready; it is from the start."""
    return _initialized


def init() -> None:
    """Nothing to do: the device is ready from the start."""


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    return False  # memory is the host's: a child process goes on with its copy


def _finish_before_fork() -> None:
    _native.lib.ae_synchronize()  # an op's error is kept for whoever reads its result


os.register_at_fork(before=_finish_before_fork)


# Devices


def device_count() -> int:
    """1."""
    return COUNT


def current_device() -> int:
    """The index of the current device: 0."""
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: Device) -> None:
    """Makes `device` the current one. A negative index changes nothing."""
    torch._C._accelerator_setDeviceIndex(index_of(device))


def _exchange_device(index: int) -> int:
    return index_of(index) if index < 0 else torch._C._accelerator_exchangeDevice(index)


def _maybe_exchange_device(index: int) -> int:
    return torch._C._accelerator_maybeExchangeDevice(index)


class device:
    """Makes a device the current one within a `with` block. None changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Makes the device of a tensor or storage the current one; of another kind of device, changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == NAME else None)


class DeviceProperties(NamedTuple):
    """Of the host, whose memory and processors the device uses."""

    name: str
    total_memory: int
    multi_processor_count: int


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown processor"


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, memory in bytes, and processors that this process may use."""
    total = mem_get_info(device)[1]
    return DeviceProperties(get_device_name(device), total, len(os.sched_getaffinity(0)))


def get_device_name(device: Device = None) -> str:
    """The device's name, with that of the processor that does the work."""
    index_of(device)
    return f"{NAME} on {_processor()}"


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(0, 0): the device has no compute capability in CUDA's sense."""
    index_of(device)
    return 0, 0


# Numeric types


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What torch.autocast("neuron") can cast to: the same as on the CPU."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True."""
    return True


# Random numbers: the generator of the CPU, with a state of its own. Its state can be given to a CPU generator and back.

default_generators: tuple[torch.Generator, ...] = (torch.ops.adaptive_eager.default_generator(),)


def get_rng_state(device: Device = NAME) -> torch.Tensor:
    """The state of the device's generator, a CPU tensor of bytes."""
    return default_generators[index_of(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Device = NAME) -> None:
    """Sets the state of the device's generator."""
    default_generators[index_of(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator. torch.manual_seed() seeds it too."""
    default_generators[current_device()].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator with a random number."""
    default_generators[current_device()].seed()


def seed_all() -> None:
    """Seeds the generators of all devices with one random number."""
    seed()
    manual_seed_all(initial_seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generators[current_device()].initial_seed()
