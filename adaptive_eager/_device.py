"""Which device an argument means. There is one, with index 0."""

from typing import TypeAlias

import torch

NAME = "neuron"
COUNT = 1

Device: TypeAlias = torch.device | int | str | None


def index_of(device: Device = None) -> int:
    """The index that `device` names; the current device's where it names none."""
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != NAME:
            raise ValueError(f"Expected a {NAME} device, but got: {device}")
        device = device.index
    if device is None or device == -1:
        return 0
    if not 0 <= device < COUNT:
        raise RuntimeError(f"{NAME}: invalid device index {device}, expected 0: there is {COUNT} device")
    return device
