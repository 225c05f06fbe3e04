"""One case: a world, a length, a kind of tensor, and the numbers that every rank holds.

The numbers are integers, so that sums are exact in any order of adding. Four ways to
choose them, by ``case.numbers``:

    "digits"   rank r holds (i + 1) · 10^r: a sum spells who is in it, 111 is everybody once
    "codes"    one power of 4 for each (rank, element): ``contributions`` reads a sum back
    "random"   drawn from the case's seed
    "large"    too large for a dtype of fewer bits to hold
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

LAYOUTS = ("contiguous", "strided", "transposed", "matrix", "scalar", "mixed")
SPREAD = ("strided", "transposed", "mixed")  # their elements do not lie side by side
MOVABLE = ("float64", "bfloat16", "float16", "int8", "uint8", "int16", "int64", "bool", "complex64")
SHAPES = ("strided", "transposed", "matrix")
HELD = "rank 1 holds"  # an option of exercises whose arguments ``tensor`` makes
ALL_HOLD = "all ranks begin with"  # the same of every rank, and of the first element alone
SPECIAL = {"zeros": 0.0, "infinities": float("inf"), "NaN": float("nan")}
LOWEST = {"infinities below zero": float("-inf")}
SIGNED = "zeros of either sign"  # −0.0 on even ranks
LONG = 1 << 18, 1 << 19  # elements: from, and below; a megabyte and more
LARGE = {"int32": 1 << 26, "int64": 1 << 57, "float64": 1 << 48}


@dataclass(frozen=True)
class Case:
    """What one play of an exercise is played with. ``length`` means what the exercise says."""

    world: int
    length: int = 0
    dtype: str = "float32"
    layout: str = "contiguous"
    numbers: str = "digits"
    seed: int = 0
    calls: int = 1  # how often the function is called, one call after the other
    longer: int = 0  # by how much each call is longer than the one before
    options: dict[str, Any] = field(default_factory=dict)  # what else the exercise needs
    later: tuple[dict[str, Any], ...] = ()  # what of this is otherwise in the calls after the first
    jitter: float = 0.0  # how much longer than it should a message may take, see Network
    blank: bool = False  # messages carry zeros in place of what was sent

    def call(self, number: int) -> Case:
        """The same case with the numbers, and the length, of its ``number``-th call."""
        if not number:
            return self
        later = dict(self.later[number - 1]) if self.later else {}
        return replace(
            self,
            seed=self.seed + 7919 * number,
            length=self.length + self.longer * number,
            dtype=later.pop("dtype", self.dtype),
            options=self.options | later,
        )

    def random(self, *salt: object) -> random.Random:
        return random.Random(repr((self.seed, self.world, self.length, *salt)))


def numbers(case: Case, rank: int) -> list[int]:
    """The ``case.length`` numbers of one rank."""
    n = case.length
    if n >= LONG[0]:
        return [*islice(cycle(range(rank + 1, rank + 1000)), n)]
    if case.numbers == "large":
        return [LARGE[case.dtype] + 10 * i + rank + 1 for i in range(n)]
    if case.numbers == "codes":
        return [4 ** (n * rank + i) for i in range(n)]
    if case.numbers == "digits" and case.world <= 5 and case.dtype in ("float32", "int64"):
        return [(i % 9 + 1) * 10**rank for i in range(n)]
    rng = case.random("numbers", rank)
    most = 2 if case.dtype == "bool" else 8
    least = 0 if case.dtype in ("bool", "uint8") else 1
    return [rng.randrange(least, most) for _ in range(n)]


def tensor(case: Case, rank: int) -> Tensor:
    """The numbers of one rank as a tensor of the case's dtype and layout."""
    flat = torch.tensor(numbers(case, rank), dtype=getattr(torch, case.dtype))
    held = case.options.get(ALL_HOLD, case.options.get(HELD) if rank == 1 else None)
    if held is not None:
        values = SPECIAL | LOWEST | {SIGNED: 0.0 if rank % 2 else -0.0}
        flat[: 1 if ALL_HOLD in case.options else None].fill_(values[held])
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
    if layout == "transposed":
        return flat.reshape(rows, -1 if len(flat) else 0).t()
    if layout == "matrix":
        return flat.reshape(rows, -1 if len(flat) else 0)
    return flat.reshape(()) if layout == "scalar" else flat


def contributions(case: Case, value: float) -> Counter[tuple[int, int]] | None:
    """For numbers that are codes: how often (rank, element) is in this sum. None: not a sum."""
    if value != int(value) or value < 0 or value >= 4 ** (case.world * case.length):
        return None
    found: Counter[tuple[int, int]] = Counter()
    rest, place = int(value), 0
    while rest:
        rest, times = divmod(rest, 4)
        if times:
            found[divmod(place, case.length)] = times
        place += 1
    return found


def cases(worlds: Iterable[int], lengths: Iterable[int], **rest: Any) -> list[Case]:
    """Every world with every length."""
    lengths = list(lengths)
    return [Case(world, length, **rest) for world in worlds for length in lengths]


def crowd(rng: random.Random) -> int:
    """More ranks than the texts name."""
    return rng.randrange(11, 18)


def late_calls(world: int, length: int, **rest: Any) -> list[Case]:
    """Three calls in a row whose messages may be late: in each of the five schedules that take
    turns."""
    return [Case(world, length, seed=s, jitter=20.0, calls=3, **rest) for s in range(5)]


def moved(worlds: list[int], most: int, rng: random.Random, **rest: Any) -> list[Case]:
    """Sturdy cases of an exercise that moves tensors: nothing, scalars, strides, all dtypes."""
    kinds = [Case(rng.choice(worlds), 6, layout=layout, **rest) for layout in SHAPES]
    kinds += [Case(rng.choice(worlds), rng.randrange(1, most), dtype, numbers="random", **rest)
              for dtype in MOVABLE]  # fmt: skip
    kinds += [Case(worlds[-1], 6, layout="mixed", **rest),
              Case(worlds[0], 5, "int64", numbers="large", **rest),
              Case(worlds[0], 4, calls=2, longer=3, **rest)]  # fmt: skip
    signed = rest.get("options", {}) | {ALL_HOLD: SIGNED}
    kinds += [Case(worlds[-1], 5, **rest | {"options": signed}),
              Case(worlds[0], rng.randrange(*LONG), **rest)]  # fmt: skip
    return [*kinds, Case(worlds[0], 1, layout="scalar", **rest), Case(worlds[-1], 0, **rest)]


def nbytes(t: Tensor) -> int:
    return t.numel() * t.element_size()


def smaller(case: Case) -> Iterator[Case]:
    """Cases that say the same with less, smallest world first, plain before special."""
    once = replace(case, calls=1, longer=0, later=())
    plain = replace(once, dtype="float32", layout="contiguous")
    kinds = [plain] if plain == case else [plain, once, case]
    if case.layout == "scalar":
        kinds = [once]
    lengths = [case.length] if case.layout == "scalar" else range(min(case.length, 9) + 1)
    for world in range(1, case.world + 1):
        for length in lengths:
            for kind in kinds:
                how = case.numbers if case.numbers == "large" and kind.dtype in LARGE else "digits"
                yield replace(kind, world=world, length=length, numbers=how, seed=0)
