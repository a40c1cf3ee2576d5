"""The programs in JAX, on the CPU: op by op, and with jit. A step waits for its results."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import timing
from timing import Arrays, Step

LR, DECAY, BETA1, BETA2, EPS = 1e-3, 1e-2, 0.9, 0.999, 1e-8
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def chain(x: dict[str, jax.Array], compile: Compile) -> Step:
    @compile
    def body(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        m = a * b
        d = m + c - a
        return (d * d + b) * c - m + a

    return lambda: [body(x["a"], x["b"], x["c"]).block_until_ready()]


def rk4(x: dict[str, jax.Array], compile: Compile) -> Step:
    h = 0.005

    def slope(x: jax.Array) -> jax.Array:
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8.0

    def body(x: jax.Array) -> jax.Array:
        k1 = slope(x)
        k2 = slope(x + 0.5 * h * k1)
        k3 = slope(x + 0.5 * h * k2)
        k4 = slope(x + h * k3)
        return x + (h / 6) * (k1 + 2 * k2 + 2 * k3 + k4)

    def by_op() -> list[jax.Array]:
        state = x["start"]
        for _ in range(50):
            state = body(state)
        return [state.block_until_ready()]

    if compile is not jax.jit:
        return by_op
    whole = jax.jit(lambda start: jax.lax.fori_loop(0, 50, lambda _, state: body(state), start))
    return lambda: [whole(x["start"]).block_until_ready()]


def adamw(x: dict[str, jax.Array], compile: Compile) -> Step:
    count = len(x) // 2
    grads = [x[f"g{i}"] for i in range(count)]
    state = [[x[f"p{i}"] for i in range(count)], *([jnp.zeros_like(g) for g in grads] for _ in range(2))]
    steps = 0

    @compile
    def body(state: list[list[jax.Array]], grads: list[jax.Array], size: float, root: float) -> list[list[jax.Array]]:
        out: list[list[jax.Array]] = [[], [], []]
        for p, m, v, g in zip(*state, grads, strict=True):
            m = m + (g - m) * (1 - BETA1)
            v = v * BETA2 + g * g * (1 - BETA2)
            p = p * (1 - LR * DECAY) - size * (m / (jnp.sqrt(v) / root + EPS))
            for part, new in zip(out, (p, m, v), strict=True):
                part.append(new)
        return out

    def step() -> list[jax.Array]:
        nonlocal state, steps
        steps += 1
        size, root = LR / (1 - BETA1**steps), math.sqrt(1 - BETA2**steps)
        state = jax.block_until_ready(body(state, grads, size, root))
        return state[0]

    return step


def attn_hand(x: dict[str, jax.Array], compile: Compile) -> Step:
    seen = jnp.tril(jnp.ones((256, 256), dtype=bool))

    @compile
    def body(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = (q @ k.mT) / math.sqrt(32)
        scores = jnp.where(seen, scores, -jnp.inf)
        weights = jnp.exp(scores - scores.max(-1, keepdims=True))
        return jax.nn.silu((weights / weights.sum(-1, keepdims=True)) @ v) * 2 + v

    return lambda: [body(x["q"], x["k"], x["v"]).block_until_ready()]


PROGRAMS = {"rk4": rk4, "adamw_loop": adamw, "attn_hand": attn_hand}


def way(compile: Compile) -> Callable[[str, Arrays], Step]:
    def make(program: str, inputs: Arrays) -> Step:
        return PROGRAMS.get(program, chain)({name: jnp.array(value) for name, value in inputs.items()}, compile)

    return make


if __name__ == "__main__":
    timing.main({"op by op": way(lambda function: function), "jit": way(jax.jit)}, jax.__version__)
