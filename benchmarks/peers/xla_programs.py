"""The programs of models.py as they are on torch_xla's lazy device, with a sync a step that waits for the results."""

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("PJRT_DEVICE", "CPU")
sys.path.insert(1, str(Path(__file__).parents[1]))

import models
import timing
import torch_xla
from timing import Arrays, Step


def lazy(program: str, inputs: Arrays) -> Step:
    step = models.NAMES[program](str(torch_xla.device()))

    def finished() -> list[Any]:
        result = step()
        torch_xla.sync(wait=True)
        return result if isinstance(result, list) else [result]

    return finished


if __name__ == "__main__":
    timing.main({"lazy": lazy}, torch_xla.__version__)
