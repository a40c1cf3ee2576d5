"""The native table of elementwise ops that loops are made of, and what it leaves out."""

import json
from dataclasses import dataclass

from . import _native


@dataclass(frozen=True)
class Lowering:
    op: str  # without overload, in-place mark and foreach
    types: tuple[str, ...]
    exact: bool  # one operation of IEEE 754 or none: bits that every processor gives
    cut: int | None  # elements in ATen's vector step, where results depend on how an array is cut
    array: str | None  # the routine on whole arrays that makes the result
    how: str


def lowerings(everything: bool = False) -> list[Lowering]:
    """The table on this machine, or as it is on one that has every instruction and library."""
    rows = json.loads(_native.take_text(_native.lib.ae_describe_lowerings(int(everything))))
    return [Lowering(**{**row, "types": tuple(row["types"])}) for row in rows]


def base_name(op: str) -> str:
    """ "_foreach_add_.Scalar" is "add"."""
    name = op.removeprefix("aten::").split(".")[0].removeprefix("_foreach_")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def without_lowering() -> list[str]:
    """The ops that PyTorch tags as pointwise, that it does not compose of others, and that have no row."""
    import torch

    names = {row.op for row in lowerings(everything=True)}
    missing = set()
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::") or base_name(full) in names:
            continue
        packet, _, overload = full.removeprefix("aten::").partition(".")
        if torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"):
            continue
        try:
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        except AttributeError:
            continue
        if torch.Tag.pointwise in op.tags:
            missing.add(base_name(full))
    return sorted(missing)
