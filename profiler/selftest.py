"""Trains a tiny model on the CPU and on the device in both modes; the numbers must be the same bits."""

from collections.abc import Callable

import torch

import adaptive_eager

STEPS = 6


def train(device: str) -> list[torch.Tensor]:
    """The losses of each step, then the trained parameters."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )
    inputs, targets = torch.randn(32, 8), torch.randint(4, (32,))
    model.to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    torch.manual_seed(1)  # each device has its own generator: dropout draws the same numbers from here
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [tensor.detach().cpu() for tensor in (*losses, *model.parameters())]


def check(mode: str, expected: list[torch.Tensor], train: Callable[[str], list[torch.Tensor]] = train) -> str:
    """Empty where training in `mode` gives the CPU's bits, else what is wrong."""
    try:
        with adaptive_eager.using_mode(mode):
            found = train("neuron")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    differing = sum(not torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    return f"{differing} of {len(expected)} tensors differ from the CPU's" if differing else ""
