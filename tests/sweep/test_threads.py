"""A few ops and sizes whose work is shared between two threads: the same bits as CPU's with two threads."""

import pytest
import torch
from torch.nn import functional as F

from . import trees
from .cases import Case, gradients, seed
from .report import settle

LONG = 200_003  # above every grain size, and no multiple of a vector


@pytest.fixture(autouse=True)
def two_threads(one_thread):
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def vector(*shape):
    return torch.randn(shape or (LONG,), generator=torch.Generator().manual_seed(11), requires_grad=True)


PROGRAMS = {
    "add": (lambda a, b: a + b, vector(), vector()),
    "sigmoid": (torch.sigmoid, vector()),
    "silu": (F.silu, vector()),
    "gelu": (F.gelu, vector()),
    "exp": (torch.exp, vector()),
    "sum": (torch.sum, vector()),
    "sum over rows": (lambda a: a.sum(0), vector(1001, 203)),
    "mean over columns": (lambda a: a.mean(1), vector(1001, 203)),
    "var": (lambda a: a.var(1), vector(1001, 203)),
    "cumsum": (lambda a: a.cumsum(0), vector(1001, 203)),
    "softmax": (lambda a: a.softmax(-1), vector(1001, 203)),
    "layer_norm": (lambda a, w: F.layer_norm(a, (203,), w, w), vector(1001, 203), vector(203)),
    "batch_norm": (lambda a: F.batch_norm(a, None, None, training=True), vector(64, 7, 31, 31)),
    "matmul": (torch.matmul, vector(130, 257), vector(257, 140)),
    "bmm": (torch.bmm, vector(9, 65, 33), vector(9, 33, 70)),
    "conv2d": (lambda a, w: F.conv2d(a, w, padding=1), vector(4, 8, 33, 33), vector(16, 8, 3, 3)),
    "max_pool2d": (lambda a: F.max_pool2d(a, 3, 2), vector(4, 8, 65, 65)),
    "attention": (lambda a: F.scaled_dot_product_attention(a, a, a), vector(2, 4, 129, 32)),
    "dropout": (lambda a: F.dropout(a, 0.3), vector()),
    "normal_": (lambda a: a.detach().clone().normal_(), vector()),
    "embedding": (lambda w: F.embedding(torch.arange(997, device=w.device) % 97, w), vector(97, 301)),
    "index_put": (
        lambda a: a.index_put((torch.arange(5000, device=a.device) % 1001,), a[:1].expand(5000, 203), accumulate=True),
        vector(1001, 203),
    ),
    "sort": (lambda a: a.sort(1), vector(1001, 203)),
    "transposed copy": (lambda a: a.t().contiguous(), vector(1001, 203)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_threads(name, record_property):
    fn, *given = PROGRAMS[name]

    def run(device):
        inputs = trees.copy_to(given, device)
        seed(13)
        result = fn(*inputs)
        return (result, gradients(result, inputs, device)), inputs

    settle("threads", name, "float32", lambda: [Case("forward", name, run)], record_property)
