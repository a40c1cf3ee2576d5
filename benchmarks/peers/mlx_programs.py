"""The programs in MLX, on its CPU backend: lazy with an eval a step, and with mx.compile."""

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import timing
from timing import Arrays, Step

LR, DECAY, BETA1, BETA2, EPS = 1e-3, 1e-2, 0.9, 0.999, 1e-8
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def chain(x: dict[str, mx.array], compile: Compile) -> Step:
    @compile
    def body(a: mx.array, b: mx.array, c: mx.array) -> mx.array:
        m = a * b
        d = m + c - a
        return (d * d + b) * c - m + a

    def step() -> list[mx.array]:
        out = body(x["a"], x["b"], x["c"])
        mx.eval(out)
        return [out]

    return step


def rk4(x: dict[str, mx.array], compile: Compile) -> Step:
    h = 0.005

    def slope(x: mx.array) -> mx.array:
        return (mx.roll(x, -1) - mx.roll(x, 2)) * mx.roll(x, 1) - x + 8.0

    @compile
    def body(x: mx.array) -> mx.array:
        k1 = slope(x)
        k2 = slope(x + 0.5 * h * k1)
        k3 = slope(x + 0.5 * h * k2)
        k4 = slope(x + h * k3)
        return x + (h / 6) * (k1 + 2 * k2 + 2 * k3 + k4)

    def step() -> list[mx.array]:
        state = x["start"]
        for _ in range(50):
            state = body(state)
        mx.eval(state)
        return [state]

    return step


def adamw(x: dict[str, mx.array], compile: Compile) -> Step:
    count = len(x) // 2
    grads = [x[f"g{i}"] for i in range(count)]
    state = [[x[f"p{i}"] for i in range(count)], *([mx.zeros_like(g) for g in grads] for _ in range(2))]
    steps = 0

    @compile
    def body(state: list[list[mx.array]], size: mx.array, root: mx.array) -> list[list[mx.array]]:
        out: list[list[mx.array]] = [[], [], []]
        for p, m, v, g in zip(*state, grads, strict=True):
            m = m + (g - m) * (1 - BETA1)
            v = v * BETA2 + g * g * (1 - BETA2)
            p = p * (1 - LR * DECAY) - size * (m / (mx.sqrt(v) / root + EPS))
            for part, new in zip(out, (p, m, v), strict=True):
                part.append(new)
        return out

    def step() -> list[mx.array]:
        nonlocal state, steps
        steps += 1
        size, root = LR / (1 - BETA1**steps), math.sqrt(1 - BETA2**steps)
        state = body(state, mx.array(size), mx.array(root))
        mx.eval(state)
        return state[0]

    return step


def attn_hand(x: dict[str, mx.array], compile: Compile) -> Step:
    seen = mx.tril(mx.ones((256, 256))) > 0

    @compile
    def body(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        scores = (q @ k.swapaxes(-1, -2)) / math.sqrt(32)
        scores = mx.where(seen, scores, -math.inf)
        weights = mx.exp(scores - mx.max(scores, axis=-1, keepdims=True))
        out = (weights / mx.sum(weights, axis=-1, keepdims=True)) @ v
        return out * mx.sigmoid(out) * 2 + v

    def step() -> list[mx.array]:
        out = body(x["q"], x["k"], x["v"])
        mx.eval(out)
        return [out]

    return step


PROGRAMS = {"rk4": rk4, "adamw_loop": adamw, "attn_hand": attn_hand}


def way(compile: Compile) -> Callable[[str, Arrays], Step]:
    def make(program: str, inputs: Arrays) -> Step:
        mx.set_default_device(mx.cpu)
        return PROGRAMS.get(program, chain)({name: mx.array(value) for name, value in inputs.items()}, compile)

    return make


if __name__ == "__main__":
    timing.main({"lazy": way(lambda function: function), "compiled": way(mx.compile)}, mx.__version__)
