"""Memory of `torch.neuron`: the figures of torch.cuda, from the device's caching allocator."""

from collections import OrderedDict
from typing import Any

import torch

from . import _native
from ._device import Device, index_of

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
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
    "set_per_process_memory_fraction",
]

_fraction = 1.0


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """All figures, by names such as `allocated_bytes.all.peak`: {allocation, segment, active, allocated_bytes,
    reserved_bytes, active_bytes, requested_bytes}.{all, large_pool, small_pool}.{current, peak, allocated, freed}."""
    return torch.accelerator.memory_stats(index_of(device))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """memory_stats() as nested dictionaries."""
    return torch._C._accelerator_getDeviceStats(index_of(device))


def _figure(name: str, device: Device) -> int:
    value: int = memory_stats(device).get(name, 0)
    return value


def memory_allocated(device: Device = None) -> int:
    """Bytes in use by tensors, rounded up as the allocator hands them out. A tensor that was only recorded, or made by
    `empty` and not used, has none yet."""
    return _figure("allocated_bytes.all.current", device)


def max_memory_allocated(device: Device = None) -> int:
    """Most bytes in use since the start or reset_peak_memory_stats()."""
    return _figure("allocated_bytes.all.peak", device)


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator holds, in use or cached."""
    return _figure("reserved_bytes.all.current", device)


def max_memory_reserved(device: Device = None) -> int:
    """Most bytes held since the start or reset_peak_memory_stats()."""
    return _figure("reserved_bytes.all.peak", device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Starts the peaks over from the current figures."""
    torch._C._accelerator_resetPeakStats(index_of(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Starts the `allocated` and `freed` totals over from zero."""
    torch._C._accelerator_resetAccumulatedStats(index_of(device))


def empty_cache() -> None:
    """Gives cached memory back to the system."""
    torch._C._accelerator_emptyCache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of the machine (of the container, where it has a bound)."""
    return torch._C._accelerator_getMemoryInfo(index_of(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Bounds what the allocator takes to a fraction of the total; more raises torch.OutOfMemoryError."""
    global _fraction
    if not isinstance(fraction, float):
        raise TypeError(f"Invalid type for fraction argument, must be `float`, got {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    total = mem_get_info(device)[1]
    _native.lib.ae_memory_set_limit(0 if fraction == 1 else max(1, int(fraction * total)))
    _fraction = fraction


def get_per_process_memory_fraction(device: Device = None) -> float:
    """What set_per_process_memory_fraction() was given last; 1.0 where it was not called."""
    index_of(device)
    return _fraction


_BYTES = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNTS = (" ", "K", "M")
_ROWS = (
    ("allocated_bytes", "Allocated memory", _BYTES),
    ("active_bytes", "Active memory", _BYTES),
    ("requested_bytes", "Requested memory", _BYTES),
    ("reserved_bytes", "Reserved memory", _BYTES),
    ("allocation", "Allocations", _COUNTS),
    ("active", "Active allocs", _COUNTS),
    ("segment", "Reserved segments", _COUNTS),
)
_COLUMNS = ("current", "peak", "allocated", "freed")


def _scaled(value: int, like: int, units: tuple[str, ...]) -> str:
    """`value` in the unit in which `like`, the figure on top of the column, reads well."""
    base, most = (1024, 768 * 1024) if units is _BYTES else (1000, 750 * 1000)
    unit = 0
    while like >= most and unit + 1 < len(units):
        like //= base
        value //= base
        unit += 1
    return f"{value:6d} {units[unit]}" if units is _BYTES else f"{value:7d} {units[unit]} "


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of memory_stats() to print, in torch.cuda's layout."""
    index = index_of(device)
    stats = memory_stats(index)
    rule, double = "-" * 75, "=" * 75
    ooms, retries = stats["num_ooms"], stats["num_alloc_retries"]
    lines = [
        double,
        f"{'PyTorch neuron memory summary, device ID ' + str(index):^75}",
        rule,
        f"{f'OOMs: {ooms}':^37}|{f'retries: {retries}':^37}",
        double,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]
    pools = (("all", ""),) if abbreviated else (("all", ""), ("large_pool", "large"), ("small_pool", "small"))
    for metric, title, units in _ROWS:
        lines.append(rule)
        for pool, size in pools:
            name = f"      from {size} pool" if size else title
            keys = [(f"{metric}.{pool}.{column}", f"{metric}.all.{column}") for column in _COLUMNS]
            cells = [_scaled(stats[key], stats[top], units) for key, top in keys]
            lines.append(f" {name:<21} | " + " | ".join(cells) + " ")
    lines.append(double)
    return "".join(f"|{line}|\n" for line in lines)
