"""What docs/benchmarks.md says around its tables."""

INTRODUCTION = """\
Written by `make bench` (`python benchmarks/report.py`), but for the section *Where we lose, and why*, which is kept by
hand. Stock CPU is PyTorch's own eager mode on the CPU, ours is the `neuron` device in adaptive mode. Both run in one
process, in turn, each round the other way round. x is stock's time over ours: the median of the rounds' ratios, with
its quartiles in brackets; more is better and 1 is as fast. Before and after it is timed, each program's results are
compared with stock's bit for bit at every step, both when a result is read at once and when all are read at the end,
and once more after all the timed steps.

What becomes of a step's result decides what has to be computed. **kept**: every result of a round stays alive (the last
64 where there are more), so each is really computed; this is the column to go by. *last*: a result lives until the next
one exists. *dropped*: nobody keeps any, as in a plain timing loop; what leads to unread results only is then never
computed, so this column may say more about the loop than about the device. The *limit* is kept with execution left out:
launches run nothing, and what remains is Python and recording (an embedding then looks up zeros, as its indices would
be garbage)."""

ONE_CORE = """\
Threads are those of PyTorch's operators. At one thread the device may still run regions, and compile, on a second core
while Python goes on; here the process is pinned to one core, so nothing runs beside Python."""

COMPILING = "Loops are compiled on a thread of their own while the program goes on. The disk cache was empty."

START = """\
From a program's first step in a fresh process, beside stock CPU at its final speed. The third step is x, and waits for
its result. Then the milliseconds until 90% of the final speed, to within a round of 5 ms or a step."""

BANDWIDTH = """\
A chain of eight ops over 16M elements reads three tensors and writes one; the plain copy, `copy_`, moves as many
bytes in memory that was touched before. x is the copy's time over the chain's. The copy to compare with is in memory of
the device, whose large pages make it faster than in stock's."""

COMPILED = """\
Stock, `torch.compile` (inductor, its defaults) of the whole step, and ours in one process, one thread, results kept.
Seconds are what the first four steps took beyond the final speed, with empty caches; bits are those of torch.compile in
these four steps."""

PEERS = """\
One thread, as far as a library can be told so. x is stock PyTorch's time over theirs, from processes that ran one after
the other. In brackets: whether the first three steps have stock PyTorch's bits, and what the first step took beyond a
later one. A peer's step ends when its result is there; results of ours are kept. The loop over 50 steps of `rk4` is
`fori_loop` for `jit`, and `mx.compile` compiles one of the 50."""

SMALL_OPS = "One op on 16 elements from Python, results kept, in both modes of the device."
