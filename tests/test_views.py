"""Views share memory, cost no launch, and pass writes both ways; conjugate and negative views too."""

from collections.abc import Callable

import pytest
import torch

from adaptive_eager import stats

Agree = Callable[..., None]
View = Callable[[torch.Tensor], torch.Tensor]

pytestmark = pytest.mark.usefixtures("reset", "mode")

VIEWS: dict[str, View] = {
    "view": lambda x: x.view(6, 4),
    "reshape": lambda x: x.reshape(2, 12),
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.view(2, 3, 4).permute(2, 0, 1),
    "slice": lambda x: x[1:3, ::2],
    "select": lambda x: x[:, 2],
    "narrow": lambda x: x.narrow(1, 2, 3),
    "expand": lambda x: x[:, :1].expand(4, 5),
    "squeeze": lambda x: x[None].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "diagonal": lambda x: x.diagonal(1),
    "unfold": lambda x: x.unfold(1, 3, 3),
    "as_strided": lambda x: x.as_strided((3, 2), (5, 1), 2),
    "split": lambda x: x.split([1, 3])[1],
    "chunk": lambda x: x.chunk(3, 1)[2],
    "unbind": lambda x: x.unbind(1)[3],
    "movedim": lambda x: x.view(2, 3, 4).movedim(0, 2),
    "flatten": lambda x: x.flatten(),
    "dtype": lambda x: x.view(torch.int32),
    "detach": lambda x: x.detach(),
    "real": lambda x: x.view(2, 6, 2).contiguous() if x.is_complex() else torch.view_as_complex(x.view(12, 2)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_writes_pass_both_ways(name: str, agree: Agree) -> None:
    def program(device: str) -> list[object]:
        x = torch.arange(24.0, device=device).view(4, 6) + 1
        y = VIEWS[name](x)
        before = y.clone()
        x.add_(1)
        through = y.clone()
        if name not in ("expand",):
            y.mul_(2)
        return [before, through, y, x, y.shape, y.stride(), y.storage_offset()]

    agree(program)


@pytest.mark.parametrize("name", VIEWS)
def test_view_of_a_pending_tensor_launches_nothing(name: str) -> None:
    for _ in range(3):
        x = torch.arange(24.0, device="neuron").view(4, 6) + 1
        before = stats()
        y = VIEWS[name](x)
        assert (stats().launches, stats().pending_ops) == (before.launches, before.pending_ops)
        offset = y.data_ptr() - x.data_ptr()
        assert offset == y.storage_offset() * y.element_size()


def test_view_that_the_strides_forbid_is_refused() -> None:
    for _ in range(3):
        x = torch.arange(24.0, device="neuron").view(4, 6) + 1
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            x.t().view(24)
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            x.view(5, 5)
        with pytest.raises(IndexError):
            x.select(0, 4)


def test_conjugate_and_negative_views(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        z = torch.complex(torch.arange(4.0), torch.arange(-2.0, 2.0)).view(2, 2).to(device) * 1
        c = z.conj()
        results = [
            c.imag,
            c.real,
            c.clone(),
            c + z,
            c * z,
            z.mH @ z,
            c @ c,
            torch.empty_like(z).copy_(c),
            c.resolve_conj(),
        ]
        w = z.clone()
        w.conj().imag.add_(10)
        w.conj().mul_(2)
        torch.view_as_real(w)[..., 1].sub_(1)
        return [
            *results,
            w,
            c.imag.add(1),
            c.sum(),
            z[0].dot(z[1].conj()),
            (z * 1j).conj().imag,
            c.cpu(),
            c.imag.to("cpu"),
        ]

    agree(program)


def test_views_keep_their_base_and_version(agree: Agree) -> None:
    def program(device: str) -> list[object]:
        x = torch.zeros(4, 4, device=device)
        y = x[1:]
        z = y.t()
        z.add_(1)
        y[0] = 5
        return [z._base is x, y._is_view(), x._version == y._version == z._version, x._version, x]

    agree(program)


def test_zero_dim_views_are_read_at_their_own_offset(agree: Agree) -> None:
    def program(device: str) -> list[torch.Tensor]:
        row, x = torch.tensor([10.0, 20.0, 30.0], device=device), torch.ones(3, device=device)
        a, b = x + row[1], torch.where(row[2] > 25, x, row[0])
        row[1] = -5
        return [a, b, x + row[1], torch.maximum(x, row[0]), row[2] - x]

    agree(program)
