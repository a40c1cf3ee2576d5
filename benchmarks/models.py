"""Programs of the kinds that people run: NAMES maps a name to make(device), which gives a step from fresh state.

A step returns what it computed, one tensor, a number, or a list of tensors. Each is the same program on every device.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], object]
Make = Callable[[str], Step]  # make(device) gives a step from fresh state


def chain(size: int) -> Make:
    """Eight pointwise ops over three inputs, one result."""

    def make(device: str) -> Step:
        generator = torch.Generator().manual_seed(0)
        a, b, c = (torch.randn(size, generator=generator).to(device) for _ in range(3))

        def step() -> Tensor:
            m = a * b
            d = m + c - a
            return (d * d + b) * c - m + a

        return step

    return make


def rk4(device: str) -> Step:
    """Fifty Runge-Kutta steps of the Lorenz-96 weather model."""
    start = torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(device)

    def slope(x: Tensor) -> Tensor:
        return (x.roll(-1) - x.roll(2)) * x.roll(1) - x + 8.0

    def step() -> Tensor:
        x, h = start, 0.005
        for _ in range(50):
            k1 = slope(x)
            k2 = slope(x + 0.5 * h * k1)
            k3 = slope(x + 0.5 * h * k2)
            k4 = slope(x + h * k3)
            x = x + (h / 6) * (k1 + 2 * k2 + 2 * k3 + k4)
        return x

    return step


class LSTM(nn.Module):
    """One layer, written out by hand."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.input, self.state = nn.Linear(width, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.hidden = hidden

    def forward(self, sequence: Tensor) -> Tensor:
        h = c = sequence.new_zeros(sequence.shape[1], self.hidden)
        for x in sequence:
            keep, write, out, new = (self.input(x) + self.state(h)).chunk(4, -1)
            c = keep.sigmoid() * c + write.sigmoid() * new.tanh()
            h = out.sigmoid() * c.tanh()
        return h


def lstm(device: str) -> Step:
    torch.manual_seed(0)
    model, sequence, target = LSTM(32, 64), torch.randn(64, 8, 32), torch.randn(8, 64)
    model, sequence, target = model.to(device), sequence.to(device), target.to(device)

    def step() -> list[Tensor | None]:
        model.zero_grad()
        F.mse_loss(model(sequence), target).backward()
        return [parameter.grad for parameter in model.parameters()]

    return step


def adamw(foreach: bool) -> Callable[[str], Step]:
    """An optimizer step over 200 parameters."""

    def make(device: str) -> Step:
        torch.manual_seed(0)
        parameters = [torch.randn(64, 64).to(device).requires_grad_() for _ in range(200)]
        for parameter in parameters:
            parameter.grad = torch.randn(64, 64).to(device)
        optimizer = torch.optim.AdamW(parameters, 1e-3, foreach=foreach)

        def step() -> list[Tensor]:
            optimizer.step()
            return parameters

        return step

    return make


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 96, width: int = 128, layers: int = 4, length: int = 128) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor, at: int = 0, caches: list[list[Tensor]] | None = None) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(at, at + ids.shape[1], device=ids.device))
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches is not None else None)
        return self.head(self.norm(x))


def gpt_train(device: str) -> Step:
    torch.manual_seed(0)
    model, ids = GPT().to(device), torch.randint(96, (4, 65)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def gpt_decode(device: str) -> Step:
    """48 tokens, one by one, with a cache of keys and values; nothing is read on the way."""
    torch.manual_seed(0)
    model = GPT().to(device).eval()

    @torch.no_grad()
    def step() -> Tensor:
        caches: list[list[Tensor]] = [[] for _ in model.blocks]
        tokens = [torch.full((1, 1), 7, device=device)]
        for at in range(48):
            tokens.append(model(tokens[-1], at, caches)[:, -1].argmax(-1, keepdim=True))
        return torch.cat(tokens, 1)

    return step


class ResNet(nn.Module):
    def __init__(self, channels: int = 16, depth: int = 6) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, channels, 3, padding=1), nn.Linear(channels, 10)
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = x + norm(convolution(x)).relu()
        return self.head(x.mean((-1, -2)))


def resnet(device: str) -> Step:
    torch.manual_seed(0)
    model, images, labels = ResNet(), torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
    model, images, labels = model.to(device), images.to(device), labels.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def policy(device: str) -> Step:
    """A small network in a control loop: the host waits for every answer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)).to(device)
    state = torch.randn(1, 8)

    @torch.no_grad()
    def step() -> float:
        total = 0.0
        for i in range(50):
            total += model((state + i * 0.01).to(device)).max().item()
        return total

    return step


def varlen(device: str) -> Step:
    """A batch of sequences, each of another length."""
    torch.manual_seed(0)
    weight = torch.randn(64, 64).to(device)
    sequences = [torch.randn(int(n), 64).to(device) for n in torch.randperm(200) + 1]

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for sequence in sequences:
            mixed = F.gelu(sequence @ weight) * 0.5 + 1.0
            total = total + (mixed.softmax(-1) * sequence).sum()
        return total

    return step


def attention(device: str) -> Step:
    """Attention written out by hand, with a mask and a stable softmax."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 4, 256, 32).to(device) for _ in range(3))
    seen = torch.ones(256, 256, dtype=torch.bool).tril().to(device)

    def step() -> Tensor:
        scores = (q @ k.mT) / math.sqrt(32)
        scores = scores.masked_fill(~seen, -math.inf)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return F.silu((weights / weights.sum(-1, keepdim=True)) @ v) * 2 + v

    return step


CHAINS = {"chain_16": 16, "chain_4096": 4096, "chain_65536": 65536, "chain_1M": 1 << 20, "chain_16M": 1 << 24}

NAMES: dict[str, Make] = {
    **{name: chain(size) for name, size in CHAINS.items()},
    "rk4": rk4,
    "lstm": lstm,
    "adamw_loop": adamw(foreach=False),
    "adamw_foreach": adamw(foreach=True),
    "gpt_train": gpt_train,
    "gpt_decode": gpt_decode,
    "resnet": resnet,
    "policy_item": policy,
    "varlen": varlen,
    "attn_hand": attention,
}
PEERS = [*CHAINS, "rk4", "adamw_loop", "attn_hand"]  # those that peers/ has in other frameworks too
