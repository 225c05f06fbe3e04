"""One case of an exercise: a world, a length, a kind of tensor, and what else is special about it.

The numbers in a tensor are small integers, so that sums are exact in any order of adding. In small
worlds rank r holds (i + 1) · 10^r: a sum then spells who is in it, 111 is three ranks once each.

``features`` names what is special about a case. When an answer fails only where a case has some
feature, ``clause`` says so in words.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from course_sim import Network

SPREAD = ("strided", "transposed", "mixed")  # layouts whose elements do not lie side by side
SLOW = 1e6  # bytes/s: a thousand bytes take 200 times the latency
LARGE = 1 << 57  # no float holds all integers around it
SPECIAL = (0.0, -0.0, float("nan"), float("inf"), 1.0)


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
    """A tensor of eighths between −2 and 2; ``who`` is a salt, so that each gets others."""
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


def rows(names: str, *sizes: tuple, **rest: Any) -> list[Case]:
    """A case for each (ranks, length, and then the options with these names)."""
    more = rest.pop("options", {})
    return [
        Case(w, n, options=dict(zip(names.split(), values, strict=True)) | more, **rest)
        for w, n, *values in sizes
    ]


def crowd(rng: random.Random) -> int:
    """A number of ranks that is larger than any that the texts name."""
    return rng.randrange(11, 18)


def hostile(
    world: int, length: int, layouts: tuple[int, int] | None = None, **rest: Any
) -> list[Case]:
    """What a function that moves or adds tensors has to stand: layouts, dtypes, special numbers,
    several calls in a row under late messages. ``layouts``: a world and a length for the first."""
    few, short = layouts or (world, length)
    kinds = [
        Case(few, short // 2, layout="strided", **rest),
        Case(few, short, layout="mixed", **rest),
        Case(world, 1, layout="scalar", **rest),
        Case(world, length, "int64", numbers="large", **rest),
        Case(world, length, "bfloat16", numbers="random", **rest),
        Case(world, max(length, 5), numbers="special", **rest),
    ]
    return [*kinds, Case(world, length, jitter=20.0, calls=3, numbers="random", **rest)]


# ---- what is special about a case --------------------------------------------------------------

COPY = (
    "Messages need contiguous memory. contiguous(), and often reshape(), makes a copy: does "
    "what is done to the copy reach the tensor?"
)
# By feature the end of a sentence that begins with "where", and a question about it. Exercises have
# words for their own features. None stands for an option, or a text among the options, that is
# nothing special.
Words = Mapping[str, str | None]
WORDS: Words = {
    "sum": None,
    "alone": "one rank is alone. Whom does it ask then, and what does it get?",
    "crowd": "there are many ranks. Which number in it is really the number of ranks?",
    "no power of two": "the number of ranks is no power of two. Play three ranks by hand: who is "
    "whose partner, round by round?",
    "empty": "there are no elements. An empty tensor is still a tensor, and an empty range a "
    "range.",
    "few": "there are fewer elements than ranks. Then a part has one element or none: are all of "
    "them there?",
    "uneven": "the length is not a multiple of the number of ranks. Where is the rest?",
    "calls": "it is called several times in a row. What does it keep from one call, or take from "
    "the next?",
    "changes": "an argument is another one in a later call. What does it keep from the call "
    "before?",
    "slow": "links are slow, and bytes take longer than latencies. Whose link carries how many "
    "tensors, one after another?",
    "late": "messages may be late. Does it take the first message that comes, whoever sent it?",
    "nccl": "the backend is NCCL. Calls return before anything has happened, and all messages of a "
    "group queue up in one stream.",
    "strided": f"the elements do not lie side by side in memory. {COPY}",
    "transposed": f"the elements lie in another order in memory. {COPY}",
    "unordered": f"the elements do not lie one after the other in memory. {COPY}",
    "mixed": "the ranks' elements lie in different orders in memory. send and recv go through "
    "memory as it lies.",
    "scalar": "the tensor has no dimension. What does it take for granted about the shape?",
    "special": "there are zeros, NaN or infinities. Zero times NaN is NaN, and so is ∞ − ∞.",
    "large": "the integers are too large for fewer bits. Which dtype do they pass through?",
    "src": "src is not rank 0. Which lines name a rank and do not mean src?",
    "dst": "dst is not rank 0. Which lines name a rank and do not mean dst?",
}


def features(case: Case, words: Words) -> set[str]:
    """In which ways a case is not the plain one: 2 to 5 ranks, contiguous float32, one call.

    An option counts by its own name where there are words for it, else by the text that it has.
    """
    known = {**WORDS, **words}  # a name that is not in there gets a space below, and not None
    out = {case.layout} - {"contiguous"} | {case.numbers} & {"large", "special"}
    for name, value in case.options.items():
        if value and isinstance(value, str) and None not in map(known.get, (name, value), "  "):
            out |= {name, value} & known.keys() or {value}
        elif name in ("src", "dst") and value:
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


def clause(feature: str, words: Words) -> tuple[str, str]:
    """A feature in words: the end of a sentence that begins with "where", and a question."""
    is_dtype = isinstance(getattr(torch, feature, None), torch.dtype)
    kind = "the dtype is " if is_dtype else "the case says "
    text = words.get(feature) or WORDS.get(feature) or kind + feature
    said, _, question = text.partition(". ")
    return said.removesuffix("."), question
