"""Copies of nested arguments on a device, and flat, comparable descriptions of nested results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Leaves that a tree map must reach although they are no tensors.
HOST = torch.device("cpu")


def copy_to(tree: Any, device: str) -> Any:
    """A deep copy on `device` that keeps strides, offsets, shared storages, conjugate and negative bits, and leaves."""
    storages: dict[int, torch.Tensor] = {}

    def storage(t: torch.Tensor) -> torch.Tensor:
        source = t.untyped_storage()
        if source._cdata not in storages:
            flat = torch.empty(0, dtype=torch.uint8).set_(source)
            storages[source._cdata] = flat.clone() if device == "cpu" else flat.to(device)
        return storages[source._cdata]

    def dense(t: torch.Tensor) -> torch.Tensor:
        if t.is_conj():
            return dense(t.conj()).conj()
        if t.is_neg():
            return torch._neg_view(dense(torch._neg_view(t)))
        flat = storage(t)
        unit = t.element_size()
        if flat.numel() % unit:
            flat = flat[: flat.numel() // unit * unit]
        return flat.view(t.dtype).as_strided(t.size(), t.stride(), t.storage_offset())

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            plain = leaf.layout == torch.strided and not leaf.is_quantized and not leaf.is_nested
            with torch.no_grad():
                new = dense(leaf.detach()) if plain else leaf.detach().clone().to(device)
            new = new.detach()
            if isinstance(leaf, torch.nn.Parameter):
                return torch.nn.Parameter(new, leaf.requires_grad)
            return new.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.Generator):
            return torch.Generator(device).manual_seed(leaf.initial_seed())
        if isinstance(leaf, torch.device) and leaf.type == "cpu":
            return torch.device(device)
        if isinstance(leaf, str) and leaf == "cpu":
            return device
        return leaf

    return pytree.tree_map(one, tree)


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


@dataclass(frozen=True)
class Leaf:
    """A result: what can be said about it without its values, and its values on the host."""

    facts: dict[str, Any]
    value: Any


def describe(tree: Any, arguments: Any = (), values: bool = True) -> list[Leaf]:
    """One Leaf per leaf of `tree`; a tensor says which of `arguments` shares its storage."""
    owners: dict[int, int] = {}
    for index, argument in enumerate(tensors(arguments)):
        if argument.layout == torch.strided:
            owners.setdefault(argument.untyped_storage()._cdata, index)
    leaves, spec = pytree.tree_flatten(tree)
    return [Leaf({"tree": str(spec)}, None)] + [_leaf(leaf, owners, values) for leaf in leaves]


def _leaf(leaf: Any, owners: dict[int, int], values: bool) -> Leaf:
    if isinstance(leaf, torch.Tensor):
        return _tensor(leaf, owners, values)
    if isinstance(leaf, torch.device) or leaf in ("cpu", "neuron"):
        return Leaf({"device": "its own"}, None)
    return Leaf({"type": type(leaf).__name__, "value": repr(leaf)}, None)


def _tensor(t: torch.Tensor, owners: dict[int, int], values: bool) -> Leaf:
    facts: dict[str, Any] = {
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "layout": t.layout,
        "requires_grad": t.requires_grad,
        "is_leaf": t.is_leaf,
    }
    value: Any = None
    with torch.no_grad():
        t = t.detach()
        if t.layout == torch.strided and not t.is_nested:
            facts |= {
                "stride": t.stride(),
                "offset": t.storage_offset(),
                "conj": t.is_conj(),
                "neg": t.is_neg(),
                "shares storage with argument": owners.get(t.untyped_storage()._cdata),
            }
            if values:
                value = t.cpu().resolve_conj().resolve_neg()
        elif values:
            value = _pieces(t.cpu())
    return Leaf(facts, value)


def _pieces(t: torch.Tensor) -> Any:
    if t.layout == torch.sparse_coo:
        return (t._indices(), t._values(), torch.tensor(t.is_coalesced()))
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return (t.crow_indices(), t.col_indices(), t.values())
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return (t.ccol_indices(), t.row_indices(), t.values())
    if t.is_nested:
        return tuple(t.unbind())
    raise TypeError(f"no way to compare a tensor of layout {t.layout}")


def difference(expected: list[Leaf], actual: list[Leaf]) -> str | None:
    """What differs first, in words, or None."""
    if len(expected) != len(actual):
        return f"{len(actual)} results, expected {len(expected)}"
    for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
        if want.facts != got.facts:
            names = want.facts.keys() | got.facts.keys()
            apart = {n: (want.facts.get(n), got.facts.get(n)) for n in names if want.facts.get(n) != got.facts.get(n)}
            return f"result {index - 1}: " + ", ".join(f"{n} is {g}, expected {w}" for n, (w, g) in apart.items())
        if (words := _values_differ(want.value, got.value)) is not None:
            return f"result {index - 1}: {words}"
    return None


def _values_differ(want: Any, got: Any) -> str | None:
    if want is None or got is None:
        return None
    if isinstance(want, tuple):
        for w, g in zip(want, got, strict=True):
            if w.shape != g.shape:
                return f"a piece has shape {tuple(g.shape)}, expected {tuple(w.shape)}"
            if (words := _values_differ(w, g)) is not None:
                return words
        return None
    if torch.equal(_bytes(want), _bytes(got)):
        return None
    if want.is_complex():
        want, got = torch.view_as_real(want), torch.view_as_real(got)
    want, got = want.reshape(-1), got.reshape(-1)
    apart = (_bytes(want).view(len(want), -1) != _bytes(got).view(len(want), -1)).any(1)
    apart &= ~(want.isnan() & got.isnan())  # which of two NaNs comes out is up to the processor's order of operands
    if not apart.any():
        return None
    first = int(apart.nonzero()[0])
    return f"{int(apart.sum())} of {len(want)} values differ, [{first}] is {got[first]}, expected {want[first]}"


def _bytes(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)  # also unit strides


Maker = Callable[[str], Any]
