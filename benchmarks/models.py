"""Programs of the kinds that people run: NAMES maps a name to make(device), which gives a step from fresh state."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], object]


def rk4(device: str) -> Step:
    """Sixteen Runge-Kutta steps of a chain of coupled oscillators."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 2048, generator=generator).to(device)

    def slope(state: Tensor) -> Tensor:
        position, velocity = state
        pull = position.roll(1) - 2 * position + position.roll(-1)
        return torch.stack([velocity, pull - position.sin() - 0.1 * velocity])

    def step() -> Tensor:
        state, h = start, 0.01
        for _ in range(16):
            k1 = slope(state)
            k2 = slope(state + k1 * (h / 2))
            k3 = slope(state + k2 * (h / 2))
            k4 = slope(state + k3 * h)
            state = state + (k1 + 2 * (k2 + k3) + k4) * (h / 6)
        return state

    return step


class LSTM(nn.Module):
    """One layer, written out by hand."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.input, self.state = nn.Linear(width, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
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
    model, sequence, target = LSTM(24, 48), torch.randn(40, 8, 24), torch.randn(8, 48)
    model, sequence, target = model.to(device), sequence.to(device), target.to(device)

    def step() -> Tensor:
        model.zero_grad()
        F.mse_loss(model(sequence), target).backward()
        assert model.state.weight.grad is not None
        return model.state.weight.grad

    return step


def adamw(foreach: bool) -> Callable[[str], Step]:
    """An optimizer step over 120 parameters."""

    def make(device: str) -> Step:
        torch.manual_seed(0)
        parameters = [torch.randn(48, 48).to(device).requires_grad_() for _ in range(120)]
        for parameter in parameters:
            parameter.grad = torch.randn(48, 48).to(device)
        optimizer = torch.optim.AdamW(parameters, 1e-3, foreach=foreach)

        def step() -> Tensor:
            optimizer.step()
            return parameters[0][0].clone()

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
    def __init__(self, vocabulary: int = 80, width: int = 96, layers: int = 4, length: int = 96) -> None:
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
    model, ids = GPT().to(device), torch.randint(80, (4, 49)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def gpt_decode(device: str) -> Step:
    """Forty tokens, one by one, with a cache of keys and values; nothing is read on the way."""
    torch.manual_seed(0)
    model = GPT().to(device).eval()

    @torch.no_grad()
    def step() -> Tensor:
        caches: list[list[Tensor]] = [[] for _ in model.blocks]
        tokens = [torch.full((1, 1), 7, device=device)]
        for at in range(40):
            tokens.append(model(tokens[-1], at, caches)[:, -1].argmax(-1, keepdim=True))
        return torch.cat(tokens, 1)

    return step


class ResNet(nn.Module):
    def __init__(self, channels: int = 12, depth: int = 5) -> None:
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
    model, images, labels = ResNet(), torch.randn(8, 3, 24, 24), torch.randint(10, (8,))
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
    """A small network in a control loop: the host decides after every call."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3)).to(device)

    @torch.no_grad()
    def step() -> float:
        state, total = torch.zeros(1, 6), 0.0
        for i in range(30):
            scores = model(state.to(device))
            action = int(scores.argmax().item())
            total += scores[0, action].item()
            state[0, i % 6] += 0.1 * (action - 1)
        return total

    return step


def varlen(device: str) -> Step:
    """A batch of sequences, each of another length."""
    torch.manual_seed(0)
    weight = torch.randn(32, 32).to(device)
    sequences = [torch.randn(int(n), 32).to(device) for n in torch.randperm(96) + 1]

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for sequence in sequences:
            total = total + (F.silu(sequence @ weight).softmax(0) * sequence).mean()
        return total

    return step


def attention(device: str) -> Step:
    """Attention written out by hand, with a mask and a stable softmax."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 160, 32).to(device) for _ in range(3))
    later = torch.ones(160, 160, dtype=torch.bool).triu(1).to(device)

    def step() -> Tensor:
        scores = (q @ k.mT) * (1 / math.sqrt(32))
        scores = scores.masked_fill(later, -math.inf)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return F.gelu((weights / weights.sum(-1, keepdim=True)) @ v) + v

    return step


NAMES: dict[str, Callable[[str], Step]] = {
    "rk4": rk4,
    "lstm": lstm,
    "adamw_loop": adamw(foreach=False),
    "adamw_foreach": adamw(foreach=True),
    "gpt_train": gpt_train,
    "gpt_decode": gpt_decode,
    "resnet": resnet,
    "policy_item": policy,
    "varlen": varlen,
    "attention": attention,
}
