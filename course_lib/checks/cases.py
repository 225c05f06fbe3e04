"""One case of an exercise: a world, a length, a kind of tensor, and what else is special about it.

The numbers in a tensor are small integers, so that sums are exact in any order of adding. In small
worlds rank r holds (i + 1) · 10^r: a sum then spells who is in it, 111 is three ranks once each.

``features`` names what is special about a case. When an answer fails only where a case has some
feature, ``clause`` says so in words; exercises never have to.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from course_lib.simulated import Network

SPREAD = ("strided", "transposed", "mixed")  # layouts whose elements do not lie side by side
SLOW = 1e6  # bytes/s: a thousand bytes take 200 times the latency
LARGE = 1 << 57  # no float holds all integers around it
SPECIAL = (0.0, -0.0, float("nan"), float("inf"), 1.0)
PLAIN = {
    "model": ("one layer", "two layers", "four layers"),
    "src": (0,),
    "dst": (0,),
    "op": ("sum",),
}


@dataclass(frozen=True)
class Case:
    """What one play of an exercise is played with. ``length`` means what the exercise says."""

    world: int
    length: int = 0
    dtype: str = "float32"
    layout: str = "contiguous"
    numbers: str = "digits"  # or "random", "large", "special"
    seed: int = 0
    calls: int = 1  # how often the function is called, one call after the other
    options: dict[str, Any] = field(default_factory=dict)  # what else the exercise needs
    later: tuple[dict[str, Any], ...] = ()  # what is different in the calls after the first
    jitter: float = 0.0  # how much longer than it should a message may take, see Network
    blank: bool = False  # messages carry zeros in place of what was sent
    backend: str = "gloo"  # or "nccl": on modelled GPUs
    busy: float = 0.0  # seconds of work that rank r's GPU has before the call, r + 1 times
    bandwidth: float = Network.bandwidth  # of every link, in bytes/s

    @property
    def network(self) -> Network:
        """What it is played on."""
        return Network(bandwidth=self.bandwidth, jitter=self.jitter, zeros=self.blank)

    def call(self, number: int) -> Case:
        """The case of its ``number``-th call, from 0: other numbers, and what ``later`` says."""
        if not number:
            return self
        more = dict(self.later[number - 1]) if self.later else {}
        own = {name: more.pop(name) for name in ("length", "dtype") if name in more}
        seed = self.seed + 7919 * number
        return replace(self, seed=seed, options=self.options | more, **own)

    def random(self, *salt: object) -> random.Random:
        return random.Random(repr((self.seed, self.world, self.length, *salt)))

    @property
    def size(self) -> tuple[int, int]:
        return self.world, self.length


def numbers(case: Case, rank: int) -> list[Any]:
    """The ``case.length`` numbers of one rank."""
    places = range(case.length)
    if case.numbers == "large":
        return [LARGE + 10 * i + rank + 1 for i in places]
    if case.numbers == "special":
        return [SPECIAL[(i + rank * (i % 2)) % len(SPECIAL)] for i in places]
    if case.numbers == "digits" and case.world <= 5 and case.dtype in ("float32", "int64"):
        return [(i % 9 + 1) * 10**rank for i in places]
    drawn = torch.Generator().manual_seed(case.random("numbers", rank).getrandbits(63))
    least, most = int(case.dtype not in ("bool", "uint8")), 2 if case.dtype == "bool" else 8
    return torch.randint(least, most, (case.length,), generator=drawn).tolist()


def drawn(case: Case, who: str, *shape: int) -> Tensor:
    """Eighths between −2 and 2, for whom the salt says."""
    source = torch.Generator().manual_seed(case.random(who).getrandbits(40))
    return torch.randint(-16, 17, shape, generator=source).to(getattr(torch, case.dtype)) / 8


def tensor(case: Case, rank: int) -> Tensor:
    """The numbers of one rank as a tensor of the case's dtype and layout."""
    flat = torch.tensor(numbers(case, rank), dtype=getattr(torch, case.dtype))
    if case.layout == "mixed":  # equal shapes, and on every other rank another order in memory
        matrix = lay_out(flat, "matrix")
        return matrix.t().contiguous().t() if rank % 2 else matrix
    return lay_out(flat, case.layout)


def lay_out(flat: Tensor, layout: str) -> Tensor:
    """The same elements in another shape, or spread in memory with foreign elements between."""
    if layout == "strided":
        base = flat.new_full((2 * len(flat) + 1,), -7)
        base[1::2] = flat
        return base[1::2]
    rows = 2 if len(flat) % 2 == 0 else 1
    if layout in ("transposed", "matrix"):
        matrix = flat.reshape(rows, -1 if len(flat) else 0)
        return matrix if layout == "matrix" else matrix.t()
    return flat.reshape(()) if layout == "scalar" else flat


# ---- lists of cases ----------------------------------------------------------------------------


def cases(worlds: Iterable[int], lengths: Iterable[int], **rest: Any) -> list[Case]:
    """Every world with every length."""
    lengths = list(lengths)
    return [Case(world, length, **rest) for world in worlds for length in lengths]


def rows(names: str, *sizes: tuple, **rest: Any) -> list[Case]:
    """A case for each (ranks, length, and then the options with these names)."""
    more = rest.pop("options", {})
    return [
        Case(w, n, options=dict(zip(names.split(), values, strict=True)) | more, **rest)
        for w, n, *values in sizes
    ]


def crowd(rng: random.Random) -> int:
    """More ranks than the texts name."""
    return rng.randrange(11, 18)


def hostile(world: int, length: int, **rest: Any) -> list[Case]:
    """What a function that moves or adds tensors has to stand: layouts, dtypes, special numbers,
    several calls in a row under late messages."""
    kinds = [Case(world, length, layout=layout, **rest) for layout in ("strided", "mixed")]
    kinds += [
        Case(world, 1, layout="scalar", **rest),
        Case(world, length, "int64", numbers="large", **rest),
        Case(world, length, "bfloat16", numbers="random", **rest),
        Case(world, max(length, 5), numbers="special", **rest),
    ]
    return [*kinds, Case(world, length, jitter=20.0, calls=3, numbers="random", **rest)]


def both_regimes(worlds: Iterable[int], **rest: Any) -> list[Case]:
    """Where only latencies count, and where only bytes do: who is quick in one may stand in a queue
    in the other."""
    worlds = list(worlds)
    return [*cases(worlds, (2,), **rest), *cases(worlds, (250,), bandwidth=SLOW, **rest)]


def smaller(case: Case) -> Iterator[Case]:
    """Cases that say the same with less, smallest world first, plain before special."""
    once = replace(case, calls=1, later=(), jitter=0.0, seed=0)
    usual = {name: value for name, (value, *_) in PLAIN.items() if name in case.options}
    plain = replace(
        once, dtype="float32", layout="contiguous", numbers="digits", options=case.options | usual
    )
    kinds = [plain, *(kind for kind in (once, case) if kind != plain)]
    named = [name for name in ("src", "dst") if name in case.options]
    for world in sorted({*range(1, min(case.world, 7)), case.world}):
        roots = sorted({0, *(min(case.options[name], world - 1) for name in named)})
        for length in range(min(case.length, 9) + 1):
            for kind, root in product(kinds, roots):
                if (length == 1 or kind.layout != "scalar") and (
                    world == case.world or not kind.later
                ):
                    options = kind.options | dict.fromkeys(named, root)
                    yield replace(kind, world=world, length=length, options=options)


# ---- what is special about a case --------------------------------------------------------------

COPY = (
    "Messages need contiguous memory. contiguous(), and often reshape(), makes a copy: does "
    "what is done to the copy reach the tensor?"
)
BUFFERS = (
    "Running means and counters are tensors of a model, too; some are integers, and some "
    "are not saved with it."
)
FEATURES = {
    "alone": ("one rank is alone", "Whom does it ask then, and what does it get?"),
    "crowd": ("there are many ranks", "Which number in it is really the number of ranks?"),
    "more than 32 ranks": ("there are more than 32 ranks", "Which line counts on fewer?"),
    "n is 1": ("n is 1", "One rank has nothing to send, and nobody to send it to."),
    "nbytes is 0": ("nbytes is 0", "A message without bytes takes its latency all the same."),
    "empty": (
        "there are no elements",
        "An empty tensor is still a tensor, and an empty range a range.",
    ),
    "few": (
        "there are fewer elements than ranks",
        "Then a part has one element or none: are all of them there?",
    ),
    "uneven": ("the length is not a multiple of the number of ranks", "Where is the rest?"),
    "own partner": (
        "a rank is its own partner",
        "Nobody sends to itself, and there is a result all the same.",
    ),
    "no neighbours": ("partners are not neighbours", "Whom does each line name?"),
    "no power of two": (
        "the number of ranks is no power of two",
        "Play three ranks by hand: who is whose partner, round by round?",
    ),
    "fewer chunks": (
        "torch.chunk makes fewer chunks than there are ranks",
        "How many chunks does chunk(4) make of 5 elements?",
    ),
    "calls": (
        "it is called several times in a row",
        "What does it keep from one call, or take from the next?",
    ),
    "changes": (
        "an argument is another one in a later call",
        "What does it keep from the call before?",
    ),
    "slow": (
        "links are slow, and bytes take longer than latencies",
        "Whose link carries how many tensors, one after another?",
    ),
    "late": ("messages may be late", "Does it take the first message that comes, whoever sent it?"),
    "nccl": (
        "the backend is NCCL",
        "Calls return before anything has happened, and all messages "
        "of a group queue up in one stream.",
    ),
    "strided": ("the elements do not lie side by side in memory", COPY),
    "transposed": ("the elements lie in another order in memory", COPY),
    "unordered": ("the elements do not lie one after the other in memory", COPY),
    "mixed": (
        "the ranks' elements lie in different orders in memory",
        "send and recv go through memory as it lies.",
    ),
    "positions": ("x has a third dimension", "Each position along L is a sample of its channel."),
    "scalar": ("the tensor has no dimension", "What does it take for granted about the shape?"),
    "special": ("there are zeros, NaN or infinities", "Zero times NaN is NaN, and so is ∞ − ∞."),
    "large": ("the integers are too large for fewer bits", "Which dtype do they pass through?"),
    "src": ("src is not rank 0", "Which lines name a rank and do not mean src?"),
    "dst": ("dst is not rank 0", "Which lines name a rank and do not mean dst?"),
    "of different lengths": (
        "the blocks differ in length",
        "In the table of lengths, what a rank sends is its row. What does it receive?",
    ),
    "uneven sides": ("the grid is not square", "Which lines mean rows, and which columns?"),
    "left over": ("gradients are left over from before", "They are no part of this step."),
    "an empty batch": (
        "some rank's batch is empty",
        "The mean of nothing is NaN. A rank without samples still has to make every call.",
    ),
    "batches of unequal size": ("the batches differ in size", "Each sample counts the same."),
    "without gradient": (
        "a gradient is missing on some rank",
        "A missing one counts as zero, and its rank has to make the same calls as all others.",
    ),
    "first layer frozen": (
        "a layer is frozen",
        "A frozen parameter has no gradient, and is a part of the model all the same.",
    ),
    "dropout": (
        "the model has Dropout",
        "Which calls switch a model between training and evaluation?",
    ),
    "frozen": ("a parameter is frozen", "It has no gradient, no bucket, and no bytes in one."),
    "another dtype": (
        "the next parameter has another dtype",
        "A bucket closes there for good. What does the new one begin with?",
    ),
    "a frozen one between": (
        "a frozen parameter lies between others of another dtype",
        "It is not one of those that are divided, and closes nothing.",
    ),
    "two swapped": (
        "two layers run in another order than that of parameters()",
        "Which bucket goes first, and which of the next ones are full by then?",
    ),
    "with all layers": (
        "a layer is used that one rank did not use the time before",
        "What has counted or filled up then, and is still there?",
    ),
    "a shared weight": ("two layers share a weight", "It is one parameter, under two names."),
    "another buffer": ("a buffer differs", BUFFERS),
    "buffers": ("the model has buffers", BUFFERS),
    "layers in layers": ("layers lie inside of layers", "Does it visit all of them?"),
    "no_sync": (
        "a pass lies in no_sync",
        "Which pass settles whether gradients travel? And what "
        "does a block leave behind: its flag, counts, gradients?",
    ),
    "evaluate": ("a forward pass has no backward", "What does forward() count on?"),
    "between": (
        "a forward pass under no_grad comes between a forward pass and its backward",
        "What does forward() begin anew that the pass under way still needs?",
    ),
    "half in no_sync": (
        "half of a pass lies in no_sync",
        "The forward half decides whether gradients travel; where backward runs does not matter.",
    ),
    "nested": (
        "a no_sync block lies inside another",
        "When it ends, what was before it has to be there again.",
    ),
    "kept gradient": (
        "no_sync has left a gradient that the next pass does not add to",
        "What a rank contributes is all that .grad holds, also where no hook ran.",
    ),
    "several steps": (
        "there is more than one step",
        "What does the second step find that the first one has left?",
    ),
    "two dtypes": ("the model has parameters of two dtypes", "Which dtype do they pass through?"),
}


def features(case: Case) -> set[str]:
    """In which ways a case is not the plain one: 2 to 5 ranks, contiguous float32, one call."""
    out = {case.layout} - {"contiguous"} | {case.numbers} & {"large", "special"}
    for name, value in case.options.items():
        if isinstance(value, str) and value not in PLAIN.get(name, ("",)):
            out |= {name, value} & FEATURES.keys() or {value}
        elif not isinstance(value, str) and name in PLAIN and value not in PLAIN[name]:
            out.add(name)
    marks = {
        "alone": case.world == 1,
        "crowd": case.world > 5,
        "calls": case.calls > 1,
        "late": case.jitter > 0,
        "slow": case.bandwidth <= SLOW,
        "changes": bool(case.later),
        "unordered": case.layout in SPREAD,
        "nccl": case.backend == "nccl",
        case.dtype: case.dtype != "float32",
    }
    return out | {name for name, there in marks.items() if there}


def chunked(case: Case) -> set[str]:
    """What is special about a length that is cut into one part for each rank."""
    marks = {
        "empty": case.length == 0,
        "few": 0 < case.length < case.world,
        "uneven": case.length > case.world and case.length % case.world > 0,
    }
    return {name for name, there in marks.items() if there}


def divides(case: Case) -> bool:
    """The ranks' parts are all of one length, and not empty."""
    return case.world > 1 and case.length > 0 and case.length % case.world == 0


def clause(feature: str) -> tuple[str, str]:
    """A feature as the end of a sentence that begins with "where", and a question about it."""
    is_dtype = isinstance(getattr(torch, feature, None), torch.dtype)
    kind = "the dtype is " if is_dtype else "the case says "
    return FEATURES.get(feature, (kind + feature, ""))
