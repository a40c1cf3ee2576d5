"""Trains a character-level transformer of a million parameters on the Python standard library's own sources.

    adaptive-eager run --report examples/train_gpt.py          # what `make demo` does, with NEURON_EAGER=adaptive
    python examples/train_gpt.py --device cpu --steps 100      # the same program on stock PyTorch

On `neuron` a twin trains on the CPU in turn, a chunk of steps each, on the same batches and with the same seeds. Every
loss and the text that is generated at the end have to be the CPU's bit for bit: else the exit status is 1.
"""

import argparse
import math
import string
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

import adaptive_eager

ALPHABET = string.ascii_letters + string.digits + string.punctuation + " \n"
WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 128, 5, 4, 64, 12
DROPOUT, PEAK_RATE, WARM_UP = 0.1, 3e-3, 50
CORPUS = 4_000_000  # most characters
TEMPERATURE = 0.7
CHUNK = 10  # steps between two looks at the loss
EAGER_STEPS = 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.project(mixed.transpose(1, 2).reshape(batch, length, WIDTH)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(len(ALPHABET), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.characters(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(self.dropout(x))))


def corpus() -> Tensor:
    """The standard library's top-level modules in the order of their names, as indices into ALPHABET."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "".join(file.read_text(encoding="utf-8", errors="ignore") for file in files)[:CORPUS]
    index = {character: i for i, character in enumerate(ALPHABET)}
    return torch.tensor([index[character] for character in text if character in index])


def batches(text: Tensor, steps: int) -> Tensor:
    """Random windows, [steps, batch, context + 1], from a generator of their own."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(text) - CONTEXT, (steps, BATCH, 1), generator=generator)
    return text[starts + torch.arange(CONTEXT + 1)]


def learning_rate(step: int, steps: int) -> float:
    """A new value each step: linear warm-up, then half a cosine down to a tenth."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    progress = (step - WARM_UP) / max(steps - WARM_UP, 1)
    return PEAK_RATE * (0.55 + 0.45 * math.cos(math.pi * progress))


@dataclass
class Trainer:
    device: str
    steps: int
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # for a step, one entry a chunk
    launches: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = Transformer().to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.1)

    def step(self, ids: Tensor, rate: float) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        logits = self.model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def chunk(self, ids: Tensor) -> None:
        """Trains on ids [steps, batch, context + 1]; the losses are read once, at the end."""
        launches, start = adaptive_eager.stats().launches, time.perf_counter()
        ids = ids.to(self.device)
        first = len(self.losses)
        losses = [self.step(batch, learning_rate(first + i, self.steps)) for i, batch in enumerate(ids)]
        self.losses += torch.stack(losses).tolist()
        self.seconds.append((time.perf_counter() - start) / len(ids))
        self.launches.append((adaptive_eager.stats().launches - launches) / len(ids))

    @torch.no_grad()
    def write(self, prompt: Tensor, count: int) -> str:
        """`count` characters that the model puts after the prompt, which fills its context."""
        self.model.eval()
        window, written = prompt.to(self.device)[None], []
        for _ in range(count):
            odds = torch.softmax(self.model(window)[:, -1] / TEMPERATURE, -1)
            written.append(torch.multinomial(odds, 1))
            window = torch.cat([window[:, 1:], written[-1]], 1)
        self.model.train()
        return "".join(ALPHABET[i] for i in torch.cat(written, 1)[0].tolist()) if written else ""


def eager_launches(ids: Tensor) -> float:
    """Launches of one training step when each op is one."""
    with adaptive_eager.using_mode("eager"):
        trainer = Trainer("neuron", len(ids))
        trainer.chunk(ids)
    return trainer.launches[0]


def train(trainers: list[Trainer], ids: Tensor, console: Console) -> None:
    """All of them, in turn by chunks, so that they see the same machine."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(TextColumn("training"), *columns, console=console) as progress:
        task = progress.add_task("", total=len(ids))
        for at, chunk in enumerate(ids.split(CHUNK)):
            for trainer in trainers if at % 2 else reversed(trainers):
                trainer.chunk(chunk)
            own = trainers[0]
            progress.update(task, advance=len(chunk), description=f"loss {own.losses[-1]:.3f}")
            if not console.is_terminal and len(own.losses) % 100 == 0:
                console.print(f"step {len(own.losses)} loss {own.losses[-1]:.3f}", highlight=False)


def headline(own: Trainer, twin: Trainer, eager: float, stats: adaptive_eager.Stats, console: Console) -> None:
    hits, misses = stats.fragment_hits, stats.fragment_misses
    warm = slice(min(5, len(own.seconds) - 1), None)  # chunks after the first few, in which caches fill
    launches = median(own.launches[warm])
    ratio = median(cpu / neuron for cpu, neuron in zip(twin.seconds[warm], own.seconds[warm], strict=True))
    milliseconds = [median(trainer.seconds[warm]) * 1e3 for trainer in (own, twin)]
    table = Table(box=None, pad_edge=False, show_header=False)
    mode = adaptive_eager.mode()
    table.add_row("launches per step", f"{eager:.0f} eager -> {launches:.1f} {mode}, {eager / launches:.0f}x fewer")
    table.add_row("cache hits", f"{100 * hits / max(hits + misses, 1):.1f}% of {hits + misses} region launches")
    table.add_row("step time", "{:.1f} ms on neuron, {:.1f} ms on stock CPU".format(*milliseconds))
    table.add_row("speed", f"{ratio:.2f}x stock CPU (median of ratios, measured in turn)")
    table.add_row("losses", f"{len(own.losses)} of {len(own.losses)} equal the CPU's bit for bit")
    console.print(table)
    if mode == "eager":
        console.print("NEURON_EAGER=adaptive batches the launches.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("neuron", "cpu"), default="neuron")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--sample", type=int, default=400, metavar="CHARACTERS", help="length of the text at the end")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    console = Console()

    text = corpus()
    ids, prompt = batches(text, args.steps), text[:CONTEXT]
    eager = 0.0
    if args.device == "neuron":
        eager = eager_launches(ids[:EAGER_STEPS])
        adaptive_eager.reset_stats()  # the report is about what follows
    trainers = [Trainer(device, args.steps) for device in dict.fromkeys((args.device, "cpu"))]
    own, twin = trainers[0], trainers[-1]
    size = sum(parameter.numel() for parameter in own.model.parameters())
    console.print(
        f"{size:,} parameters, {len(text):,} characters, {torch.get_num_threads()} threads, {args.device}",
        highlight=False,
    )

    torch.manual_seed(1)  # both devices' generators: dropout draws the same numbers
    train(trainers, ids, console)
    console.print(f"loss {own.losses[0]:.3f} -> {sum(own.losses[-20:]) / len(own.losses[-20:]):.3f}\n", highlight=False)
    stats = adaptive_eager.stats()

    torch.manual_seed(2)
    written = [trainer.write(prompt, args.sample) for trainer in trainers]
    console.print(Panel(Text(written[0]), title=f"{args.sample} characters that it writes", title_align="left"))
    if own is twin:
        console.print(f"step time {median(own.seconds) * 1e3:.1f} ms", highlight=False)
        return 0
    for step, (found, expected) in enumerate(zip(own.losses, twin.losses, strict=True)):
        if found != expected:
            print(f"the loss of step {step} is {found!r}, on the CPU it is {expected!r}", file=sys.stderr)
            return 1
    if written[0] != written[1]:
        print("the generated text is not the CPU's", file=sys.stderr)
        return 1
    headline(own, twin, eager, stats, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
