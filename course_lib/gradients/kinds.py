"""What the tensors on the ranks are to the pieces that they should be: a kind, and a sentence.

Every function below knows one kind. It looks at the tensors in the light of one cut, and returns
its sentence, or "" where it has nothing to say. The first that says something, wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from course_lib.diagnosis.lines import ranks_text
from course_lib.gradients.cuts import Cut

SHOULD = "what it should be"


@dataclass(frozen=True)
class Compared:
    """The tensors of one name: ``got[i]`` is on rank ``ranks[i]`` of a world of ``n``.

    ``tolerance`` is the error that rounding explains, as a share of the largest entry.
    """

    whole: Tensor
    got: list[Tensor]
    ranks: list[int]
    n: int
    tolerance: float

    @cached_property
    def largest(self) -> float:
        return size(self.whole)

    def near(self, got: Tensor, want: Tensor, times: float = 1.0) -> bool:
        return size(got - want) <= self.tolerance * self.largest * max(1.0, abs(times))

    def factor(self, got: Tensor, want: Tensor) -> Fraction | float | None:
        """c where got = c · want and c is not 1: a small fraction, else a number; None if none.

        A single entry is always some number times another: there only a fraction counts.
        """
        square = (want.abs() ** 2).sum().item()
        c = (want.conj() * got).sum().item() / square if square else 0.0
        real = c.real
        if not self.near(got, real * want, real):
            return None
        if abs(real) <= self.tolerance:
            return Fraction(0) if size(want) > self.tolerance * self.largest else None
        fraction = self.fraction(real)
        if fraction is None:
            return real if want.numel() > 3 else None
        return fraction if fraction != 1 else None

    def fraction(self, number: float) -> Fraction | None:
        """The simplest fraction within the tolerance, if few others are as simple as it is."""
        allowed = self.tolerance * abs(number)
        for below in range(1, 65):
            found = Fraction(round(number * below), below)
            if abs(found - number) <= allowed:
                known = {Fraction(self.n) ** k for k in (-2, -1, 1, 2)}
                rare = abs(found.numerator) * below <= min(100, 0.25 / self.tolerance)
                return found if rare or found in known else None
        return None

    def share(self, cut: Cut) -> Fraction | None:
        """What the sum of a block's copies is of the block, if that is the same for each."""
        copies = cut.copies
        sums = [
            sum((self.got[at] for at in holders), 0 * self.got[holders[0]])
            for holders in copies.values()
        ]
        wants = [cut.pieces[holders[0]] for holders in copies.values()]
        if all(map(self.near, sums, wants)):
            return Fraction(1)
        found = self.factor(flat(sums), flat(wants))
        return found if isinstance(found, Fraction) and found else None

    def times(self, factor: Fraction | float) -> str:
        """``3 times what it should be (3 is n)``."""
        known = {self.n: "n", 1 / self.n: "1/n", self.n**2: "n²", 1 / self.n**2: "1/n²"}
        number = str(factor) if isinstance(factor, Fraction) else f"{factor:.4g}"
        name = known.get(float(factor)) if self.n > 1 else None
        named = f" ({number} is {name})" if name else ""
        return f"{number} times {SHOULD}{named}" if factor else "zero"


def size(t: Tensor) -> float:
    return t.abs().max().item() if t.numel() else 0.0


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def equal(it: Compared, cut: Cut) -> str:
    return cut.how if all(map(it.near, it.got, cut.pieces)) else ""


def none(it: Compared, cut: Cut) -> str:
    zero = all(size(got) <= it.tolerance**2 * it.largest for got in it.got)
    return "zero on every rank: no gradient reaches it" if zero else ""


def factor(it: Compared, cut: Cut) -> str:
    found = it.factor(flat(it.got), flat(cut.pieces))
    return f"{it.times(found)}, on every rank" if found else ""


def sum_missing(it: Compared, cut: Cut) -> str:
    """Copies that differ, whose sum is right or a simple fraction of what is right."""
    found = it.share(cut)
    if len(cut.copies) == len(it.got) or found in (None, _holders(cut)):
        return ""
    assert found is not None
    if found != 1:  # copies that are each a multiple of the whole say more by themselves
        alone = [_standing(it, cut, at) == "wrong" for at in range(len(it.got))]
        return any(alone) * f"the ranks hold shares, and their sum is {it.times(found)}"
    zero = [rank for rank, got in zip(it.ranks, it.got, strict=True) if size(got) == 0]
    some = f"; on {ranks_text(zero)} it is zero" if zero else ""
    return f"the ranks hold shares whose sum is right: nobody added them up{some}"


def mean_missing(it: Compared, cut: Cut) -> str:
    known = len(cut.copies) < len(it.got) and it.share(cut) == _holders(cut)
    return known * "the ranks hold values whose mean is right: nobody took it"


def _holders(cut: Cut) -> Fraction:
    """How many ranks hold a block."""
    return Fraction(len(cut.blocks), len(cut.copies))


def other_part(it: Compared, cut: Cut) -> str:
    """Each rank holds a block, and somebody holds another's."""
    found = []
    for at, got in enumerate(it.got):
        own_first = [at, *range(len(it.got))]
        fits = (
            o for o in own_first if cut.pieces[o].shape == got.shape and it.near(got, cut.pieces[o])
        )
        found.append(next(fits, None))
    if None in found or len(cut.copies) == 1:
        return ""
    rows = [
        f"rank {it.ranks[at]} has the part of rank {it.ranks[other]}"
        for at, other in enumerate(found)
        if other is not None and other != at
    ]
    return ", ".join(rows)


def some_ranks(it: Compared, cut: Cut) -> str:
    standing: dict[str, list[int]] = {}
    for at, rank in enumerate(it.ranks):
        standing.setdefault(_standing(it, cut, at), []).append(rank)
    standing.pop("", None)
    wrong = standing.pop("wrong", [])
    if not standing or (wrong and "right" not in standing) or (not wrong and len(standing) == 1):
        return ""
    rows = [f"{what} on {ranks_text(ranks)}" for what, ranks in standing.items()]
    if wrong:
        slices = some_rows(it, cut)
        rows.append(f"wrong on {ranks_text(wrong)}" + f" ({slices})" * bool(slices))
    return ", ".join(rows)


def _standing(it: Compared, cut: Cut, at: int) -> str:
    got, want = it.got[at], cut.pieces[at]
    if it.near(got, want):
        return "right" if size(want) > 4 * it.tolerance * it.largest else ""
    found = it.factor(got, want)
    return "wrong" if found is None else it.times(found)


def some_rows(it: Compared, cut: Cut) -> str:
    """Some slices are right, and so many that it is no chance, or the others share a factor."""
    for dim in range(cut.pieces[0].dim()):
        got = [_slices(t, dim) for t in it.got]
        want = [_slices(t, dim) for t in cut.pieces]
        off = [
            (g - w).abs().amax(1) > it.tolerance * it.largest
            for g, w in zip(got, want, strict=True)
        ]
        telling = [w.abs().amax(1) > 4 * it.tolerance * it.largest for w in want]
        right = sum(int((~o & t).sum()) for o, t in zip(off, telling, strict=True))
        wrong = sum(int(o.sum()) for o in off)
        pairs = [(g[o], w[o]) for g, w, o in zip(got, want, off, strict=True)]
        common = it.factor(flat([g for g, _ in pairs]), flat([w for _, w in pairs]))
        if right and (right >= wrong or isinstance(common, Fraction)):
            how = "wrong" if common is None else it.times(common)
            return f"{_which(it, off, dim, cut)} {how}; the others are right"
    return ""


def _slices(t: Tensor, dim: int) -> Tensor:
    """A row for each slice along this dimension."""
    slices = t.movedim(dim, 0)
    slices = slices.reshape(len(slices), slices[:1].numel())
    return slices if slices.shape[1] else slices.new_zeros(t.shape[dim], 1)


def _which(it: Compared, off: list[Tensor], dim: int, cut: Cut) -> str:
    names = ("row", "column") if cut.pieces[0].dim() == 2 else (f"slice of dimension {dim}",) * 3
    name = "entry" if cut.pieces[0].dim() == 1 else names[dim]
    places = [o.nonzero().flatten().tolist() for o in off]
    if all(p == places[0] for p in places):
        return f"{_numbered(name, places[0])} on every rank:"
    rows = [f"{_numbered(name, p)} on rank {r}" for r, p in zip(it.ranks, places, strict=True) if p]
    return ", ".join(rows) + ":"


def _numbered(name: str, places: list[int]) -> str:
    several = name.replace("entry", "entrie").replace("slice", "slices", 1)
    several = several if "slices" in several else several + "s"
    more = [f"{len(places) - 6} more"] if len(places) > 8 else []
    words = [*map(str, places[: 6 if more else 8]), *more]
    if len(words) == 1:
        return f"{name} {words[0]}"
    return f"{several} {', '.join(words[:-1])} and {words[-1]}"


def differs(it: Compared, cut: Cut) -> str:
    errors = [size(g - w) for g, w in zip(it.got, cut.pieces, strict=True)]
    share = max(errors) / it.largest if it.largest else 0.0
    how = f"by up to {share:.2g} times its largest entry" if share else "where it should be zero"
    if len(it.got) == 1:
        return how
    copies = [holders for holders in cut.copies.values() if len(holders) > 1]
    same = all(it.near(it.got[h[0]], it.got[at]) for h in copies for at in h)
    if copies:
        return f"{how}; copies on different ranks {'agree' if same else 'differ'}"
    return f"{how}; most on rank {it.ranks[errors.index(max(errors))]}"


KINDS = {
    "equal": equal,
    "none": none,
    "factor": factor,
    "sum-missing": sum_missing,
    "mean-missing": mean_missing,
    "other-part": other_part,
    "some-ranks": some_ranks,
    "some-rows": some_rows,
    "differs": differs,
}


def kind_of(it: Compared, known: list[Cut]) -> tuple[str, str]:
    """The coarsest kind that holds in the light of any cut, and its sentence."""
    for kind, says in KINDS.items():
        for cut in known if kind != "differs" else known[:1]:
            if text := says(it, cut):
                return kind, text
    raise AssertionError("tensors that do not differ are equal")
