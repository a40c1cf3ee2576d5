"""The sweep sees what it says it sees."""

import pytest
import torch

from . import skips, trees
from .cases import Case, check

NAN = float("nan")


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_copies_keep_strides_offsets_and_aliases(device):
    base = torch.arange(24.0).reshape(4, 6)
    given = [base, base[1:, ::2], base.t(), base[:0], torch.tensor(3.0), {"z": base.to(torch.complex64).conj()}, "cpu"]
    copied = trees.copy_to(given, device)
    wanted, found = trees.describe(given, given), trees.describe(copied, copied)
    assert trees.difference(wanted, found) is None
    assert copied[0].device.type == device
    copied[1].zero_()
    assert copied[0][1, 2].item() == 0
    assert base[1, 2].item() == 8


@pytest.mark.parametrize(
    ("want", "got"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23])),
        (torch.tensor([NAN]), torch.tensor([1.0])),
        (torch.tensor([complex(0, 0.0)]), torch.tensor([complex(0, -0.0)])),
        (torch.tensor([1]), torch.tensor([1], dtype=torch.int32)),
        (torch.ones(2, 3), torch.ones(3, 2).t()),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.ones(2), [torch.ones(2)]),
        (torch.ones(2), torch.ones(2, requires_grad=True)),
        (1, 1.0),
        (0.0, -0.0),
    ],
)
def test_differences_are_found(want, got):
    assert trees.difference(trees.describe(want), trees.describe(want)) is None
    assert trees.difference(trees.describe(want), trees.describe(got)) is not None


def test_sharing_is_compared():
    a = torch.ones(3)
    assert trees.difference(trees.describe(a[:3], [a]), trees.describe(a.clone(), [a])) is not None


def test_equal_nans_are_equal():
    t = torch.tensor([NAN, -NAN, float("inf")])
    assert trees.difference(trees.describe(t), trees.describe(t.clone())) is None


def _cases_that(on_neuron):
    return [Case("forward", "it", lambda device: (on_neuron() if device == "neuron" else torch.ones(2), ()))]


def test_wrong_values_and_errors_are_failures():
    assert {f.mode for f in check(_cases_that(lambda: torch.zeros(2))).failures} == {"eager", "adaptive"}

    def refuse():
        raise ValueError

    assert len(check(_cases_that(refuse)).failures) == 4
    assert not check(_cases_that(lambda: torch.ones(2))).failures


def test_every_skip_has_a_reason():
    assert all(skip.reason for skip in skips.SKIPS)
    assert all(skips.HOST_ARGUMENTS.values())
