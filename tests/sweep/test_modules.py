"""Every ModuleInfo: forward, backward, gradients of parameters and inputs, and buffers; training and evaluation."""

import copy
import warnings

import pytest
import torch
from torch.testing._internal.common_modules import module_db

from . import trees
from .cases import CPU, Case, cotangents, seed
from .op_cases import DTYPES, dtype_name
from .report import settle

SAMPLES = 24

PARAMS = [
    pytest.param(
        info, dtype, training, id=f"{info.formatted_name}-{dtype_name(dtype)}-{'train' if training else 'eval'}"
    )
    for info in module_db
    for dtype in DTYPES
    if dtype in info.supported_dtypes(CPU)
    for training in (True, False)
]


def module_cases(info, dtype, training):
    inputs = info.module_inputs_func(
        info, device=CPU, dtype=dtype, requires_grad=dtype.is_floating_point, training=training
    )
    made = []
    for index, given in enumerate(inputs[:: max(1, len(inputs) // SAMPLES)]):
        built = given.constructor_input

        def make(built=built):
            seed(3)
            return info.module_cls(*built.args, **built.kwargs).to(dtype).train(training)

        made.append(Case("forward", f"input {index} {given.desc}", _runner(make, given.forward_input)))
    return made


def _runner(make, call):
    def run(device):
        module = copy.deepcopy(make()).to(device)
        args, kwargs = trees.copy_to((call.args, call.kwargs), device)
        seed(5)
        result = module(*args, **kwargs)
        outputs = [t for t in trees.tensors(result) if t.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, cotangents(outputs, device))
        grads = [t.grad for t in trees.tensors((args, kwargs)) if t.is_leaf]
        state = {n: (p.detach(), p.grad) for n, p in module.named_parameters()}
        return (result, grads, state, dict(module.named_buffers())), (args, kwargs)

    return run


@pytest.mark.parametrize(("info", "dtype", "training"), PARAMS)
def test_module(info, dtype, training, record_property):
    name = f"{info.formatted_name}-{'train' if training else 'eval'}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settle("module", name, dtype_name(dtype), lambda: module_cases(info, dtype, training), record_property)
