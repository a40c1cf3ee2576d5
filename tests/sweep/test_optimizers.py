"""Every optimizer, configuration and implementation: parameters and state after each of several steps."""

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

from . import trees
from .cases import CPU, Case
from .op_cases import dtype_name
from .report import settle

STEPS = 5
SHAPES = ((4, 3), (3,), (2, 3, 2), (), (5, 1))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)
# By itself torch takes foreach on an accelerator and the loop on the CPU, whose bits differ: compared with foreach.
IMPLEMENTATIONS = {  # settings on the CPU, on neuron
    "forloop": ({"foreach": False}, {"foreach": False}),
    "foreach": ({"foreach": True}, {"foreach": True}),
    "fused": ({"fused": True}, {"fused": True}),
    "default": ({"foreach": True}, {}),
}


def implementations(info):
    yield "default"
    if "foreach" in info.supported_impls:
        yield from ("forloop", "foreach")
    if "fused" in info.supported_impls and CPU in info.supports_fused_on:
        yield "fused"


PARAMS = [
    pytest.param(info, implementation, dtype, id=f"{info.name}-{implementation}-{dtype_name(dtype)}")
    for info in optim_db
    for implementation in implementations(info)
    for dtype in DTYPES
    if not dtype.is_complex or info.supports_complex
]


def optimizer_cases(info, implementation, dtype):
    inputs = info.optim_inputs_func(device=CPU)
    on_cpu, on_neuron = IMPLEMENTATIONS[implementation]
    if implementation == "default" and ("foreach" not in info.supported_impls or info.name == "Adafactor"):
        on_cpu = {}  # Adafactor takes the loop everywhere
    made = []
    for index, given in enumerate(inputs):
        settings = {"cpu": given.kwargs | on_cpu, "neuron": given.kwargs | on_neuron}
        made.append(Case("step", f"config {index} {given.desc}", _runner(info, settings, dtype)))
    return made


def _random(shape, dtype, *key):
    generator = torch.Generator().manual_seed(hash((shape, key)) % 2**31)
    return torch.randn(shape, dtype=dtype, generator=generator)


def _runner(info, settings, dtype):
    shapes = [shape for shape in SHAPES if info.name != "Muon" or len(shape) == 2]

    def run(device):
        params = [torch.nn.Parameter(_random(shape, dtype).to(device)) for shape in shapes]
        targets = [_random(shape, dtype, 1).to(device) for shape in shapes]
        kwargs = trees.copy_to(settings[device], CPU)
        optimizer = info.optim_cls(params, **kwargs)
        seen = []

        def closure():
            optimizer.zero_grad()
            loss = sum(((p - t).abs() ** 2).sum() for p, t in zip(params, targets, strict=True))
            loss.backward()
            return loss.detach()

        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * (1 - 0.1 * step)
            if info.step_requires_closure:
                seen.append(optimizer.step(closure))
            else:
                for index, p in enumerate(params):
                    grad = _random(tuple(p.shape), dtype, 2, step, index).to(device)
                    p.grad = grad.to_sparse() if info.only_supports_sparse_grads else grad
                optimizer.step()
            seen.append([p.detach().clone() for p in params])
        state = [_state(optimizer.state[p]) for p in params]
        return (seen, state), ()

    return run


def _state(values):
    """What an optimizer keeps, in the order of its keys."""
    return [(key, values[key]) for key in sorted(values) if not callable(values[key])]


@pytest.mark.parametrize(("info", "implementation", "dtype"), PARAMS)
def test_optimizer(info, implementation, dtype, record_property):
    name = f"{info.name}-{implementation}"
    settle("optimizer", name, dtype_name(dtype), lambda: optimizer_cases(info, implementation, dtype), record_property)
