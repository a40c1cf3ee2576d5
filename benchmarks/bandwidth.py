"""How fast a chain of pointwise ops over 16M elements moves its bytes, beside a plain copy of as many. Prints JSON.

The chain reads three tensors and writes one, so the copy reads and writes two such tensors: equal bytes, in memory that
both have touched before. Bytes are what the program reads and writes, not what the caches make of it. The yardstick is
stock's copy in memory of the device, whose large pages make it faster; the same copy in stock's memory is told too.
"""

import argparse
import ctypes
import json
import statistics

import measure
import models
import torch
from measure import Side

import adaptive_eager

SIZE = 1 << 24
BYTES = 4 * 4 * SIZE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    adaptive_eager.set_mode("adaptive")

    make = models.chain(SIZE)
    problem = measure.first_difference(make, steps=3)
    source = torch.ones(BYTES // 8)
    target = torch.zeros_like(source)
    on_device = [tensor.to("neuron") for tensor in (source, target)]
    sides = {
        "chain": measure.ours(make),
        "copy": plain_copy(*map(as_stock, on_device)),
        "stock_copy": plain_copy(target, source),
    }
    measure.settle(sides["chain"], 1)
    seconds = measure.in_turn(sides, 1, args.rounds)
    row = {f"{name}_gb_s": BYTES / statistics.median(found) / 1e9 for name, found in seconds.items()}
    to_copy = measure.versus(seconds["copy"], seconds["chain"])
    print(json.dumps({"threads": args.threads, "bits": not problem, "to_copy": to_copy} | row))


def plain_copy(target: torch.Tensor, source: torch.Tensor) -> Side:
    return Side(lambda: target.copy_(source))


def as_stock(tensor: torch.Tensor) -> torch.Tensor:
    """A stock CPU tensor in the memory of one on the device, which has to outlive it."""
    return torch.frombuffer((ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr()), dtype=torch.float32)


if __name__ == "__main__":
    main()
