"""What can only be mended in torch's Python: each patch, with why, is a row of PATCHES. Applied once, by _load."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from . import _native

NAME = "neuron"


# Settings that kernels read: work recorded under the old value must run under it.
# (owner, function, whether what was learned under the old value is forgotten)
SETTERS: tuple[tuple[Any, str, bool], ...] = (
    (torch, "set_num_threads", False),
    (torch, "set_flush_denormal", False),
    (torch._C, "set_num_threads", False),
    (torch._C, "set_flush_denormal", False),
    (torch._C, "_set_default_dtype", True),
    (torch._C, "_set_default_tensor_type", True),
    (torch._C, "_set_deterministic_algorithms", True),
    (torch._C, "_set_deterministic_fill_uninitialized_memory", False),
    (torch._C, "_set_float32_matmul_precision", False),
    (torch._C, "_set_fp32_precision_setter", False),
    (torch._C, "_set_onednn_allow_tf32", False),
    (torch._C, "_set_mkldnn_enabled", True),
    (torch._C, "_set_mkldnn_deterministic", False),
    (torch._C, "_set_nnpack_enabled", True),
    (torch._C, "_set_cpu_allow_fp16_reduced_precision_reduction", False),
    (torch._C, "_set_math_sdp_allow_fp16_bf16_reduction", False),
)


def _flush_before_settings() -> None:
    wrapped: dict[Any, Any] = {}
    for owner, name, relearn in SETTERS:
        setter = getattr(owner, name)
        if setter not in wrapped:
            wrapped[setter] = _after_flush(setter, relearn)
        setattr(owner, name, wrapped[setter])
    # torch.backends keeps the setters that it found at import
    for module in (torch.backends.mkldnn, torch.backends.nnpack):
        for prop in vars(type(module)).values():
            if isinstance(prop, torch.backends.ContextProp) and prop.setter in wrapped:
                prop.setter = wrapped[prop.setter]


def _after_flush(setter: Callable[..., Any], relearn: bool) -> Callable[..., Any]:
    @functools.wraps(setter)
    def set_after_flush(*args: Any, **kwargs: Any) -> Any:
        _native.check(_native.lib.ae_context_changes(relearn))
        return setter(*args, **kwargs)

    return set_after_flush


# Methods of a storage that look at its memory without going through the hook that finishes pending work.
STORAGE_METHODS = (
    "__getitem__",
    "__setitem__",
    "_byteswap",
    "_swap_data_ptr_",
    "copy_",
    "data_ptr",
    "fill_",
    "resize_",
)


def _finish_before_storage_access() -> None:
    for name in STORAGE_METHODS:
        setattr(torch.UntypedStorage, name, _after_finish(getattr(torch.UntypedStorage, name)))


def _finish(storage: torch.UntypedStorage) -> None:
    if storage.device.type == NAME and not _native.lib.ae_storage_address(storage._cdata) and storage.nbytes():
        _native.check(-1)


def _after_finish(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def access(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        _finish(self)
        for other in args:
            if isinstance(other, torch.UntypedStorage):
                _finish(other)
        return method(self, *args, **kwargs)

    return access


def _files_through_host() -> None:
    kind: Any = torch.UntypedStorage
    write, read = kind._write_file, kind._set_from_file

    @functools.wraps(write)
    def write_file(self: torch.UntypedStorage, *args: Any) -> None:
        write(self.cpu() if self.device.type == NAME else self, *args)

    @functools.wraps(read)
    def set_from_file(self: torch.UntypedStorage, *args: Any) -> Any:
        if self.device.type != NAME:
            return read(self, *args)
        return self.copy_(read(kind(self.nbytes()), *args))

    kind._write_file, kind._set_from_file = write_file, set_from_file


def _exchange_dlpack() -> None:
    """A neuron tensor is kDLExtDev to others; who wants it on the host asks for device="cpu", which copies."""
    from torch.overrides import has_torch_function_unary
    from torch.utils.dlpack import DLDeviceType

    device_of, import_any = torch.Tensor.__dlpack_device__, torch.utils.dlpack.from_dlpack

    @functools.wraps(device_of)
    def dlpack_device(self: torch.Tensor) -> Any:
        if not has_torch_function_unary(self) and self.device.type == NAME:
            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        return device_of(self)

    @functools.wraps(import_any)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
        if not isinstance(ext_tensor, torch.Tensor) or ext_tensor.device.type != NAME:
            return import_any(ext_tensor, device=device, copy=copy)
        if ext_tensor.requires_grad or ext_tensor.is_conj():
            raise BufferError("Can't export tensors that require gradient or have the conjugate bit set")
        target = torch.device(device or NAME)
        if copy is False and target.type != NAME:
            raise ValueError(f"cannot move a DLPack tensor from {ext_tensor.device} to {target} without copying")
        return ext_tensor.detach().to(target, copy=bool(copy))

    torch.Tensor.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]
    torch.from_dlpack = torch.utils.dlpack.from_dlpack = from_dlpack  # type: ignore[attr-defined]


_moving = threading.local()


def _keep_parameters() -> None:
    """As on CUDA, a move changes a Parameter in place where it can, and shared ones stay shared where it cannot."""
    original: Callable[..., torch.nn.Module] = torch.nn.Module._apply

    @functools.wraps(original)
    def apply(self: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
        outermost = not hasattr(_moving, "seen")
        if outermost:
            _moving.seen = {}
        try:
            before = dict(self._parameters)
            moved = original(self, fn, recurse)
            for name, old in before.items():
                new = self._parameters[name]
                if old is None or new is None or new is old:
                    continue
                if NAME in (old.device.type, new.device.type):
                    self._parameters[name] = _keep(old, new)
            return moved
        finally:
            if outermost:
                del _moving.seen

    torch.nn.Module._apply = apply  # type: ignore[method-assign]


def _keep(old: torch.nn.Parameter, new: torch.nn.Parameter) -> torch.nn.Parameter:
    seen: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]] = _moving.seen
    if id(old) in seen:
        return seen[id(old)][1]
    if type(new) is torch.nn.Parameter and isinstance(old, torch.nn.Parameter) and type(old) is not torch.nn.Parameter:
        new.__class__ = type(old)  # a lazy module's parameter stays uninitialized
    kept = new
    in_use = old._use_count()  # type: ignore[attr-defined]
    if in_use == 1:  # else a graph holds it, and a swap would break its backward
        try:
            torch.utils.swap_tensors(old, new)
            kept = old
        except RuntimeError:  # weak references, or subclasses whose slots differ
            pass
    seen[id(old)] = (old, kept)  # holding `old` keeps its id from being reused
    return kept


def _choose_loss_as_on_cpu() -> None:
    from torch.nn.modules import linear_cross_entropy_options as options

    for (device, dtype), default in list(options._AUTO_DEFAULTS.items()):
        if device == "cpu":
            options._AUTO_DEFAULTS[NAME, dtype] = default
    resolve = options.LinearCrossEntropyOptions._resolve_auto_acc_dtype

    @functools.wraps(resolve)
    def resolve_as_cpu(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        return resolve(dtype, torch.device("cpu") if device is not None and device.type == NAME else device)

    options.LinearCrossEntropyOptions._resolve_auto_acc_dtype = staticmethod(resolve_as_cpu)  # type: ignore[method-assign]


def _send_by_value() -> None:
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    original: Callable[[torch.Tensor], Any] = reductions.reduce_tensor

    def reduce(tensor: torch.Tensor) -> Any:
        if tensor.device.type != NAME or (tensor.requires_grad and not tensor.is_leaf):
            return original(tensor)
        return _rebuild, (type(tensor), tensor.detach().cpu(), str(tensor.device), tensor.requires_grad)

    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce)


def _rebuild(kind: type[torch.Tensor], value: torch.Tensor, device: str, requires_grad: bool) -> torch.Tensor:
    tensor = value.to(device)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


PATCHES: tuple[tuple[Callable[[], None], str], ...] = (
    (_flush_before_settings, "kernels read these settings when they run, the program set them when it called"),
    (_finish_before_storage_access, "these read a storage's memory through const access, which has no hook"),
    (_files_through_host, "these wrap a device storage's memory in a storage that is not the device's own"),
    (_exchange_dlpack, "__dlpack_device__ knows PrivateUse1 only by its first name, and a capsule loses the storage"),
    (_keep_parameters, "on PrivateUse1 Module.to replaces Parameters: ties break, optimizers keep the old ones"),
    (_choose_loss_as_on_cpu, "linear_cross_entropy picks its precision by a list of device names"),
    (_send_by_value, "sending a tensor to another process shares its memory as if it were a CPU tensor's"),
)


def apply() -> None:
    for patch, _why in PATCHES:
        patch()
