"""What the tensors on the ranks are to the pieces that they should be: a kind, and a sentence.

Every function below knows one kind. It looks at the tensors in the light of one cut, and returns
its sentence, or "" where it has nothing to say. The first that says something, wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from course_lib.diagnosis.lines import ranks_text
from course_lib.gradient_comparison.cuts import Cut

RIGHT, WRONG = "right", "wrong"
NAMES = {(1, 0): "element", (2, 0): "row", (2, 1): "column"}


@dataclass(frozen=True)
class Compared:
    """The tensors of one name beside the pieces of one cut: those of rank ``ranks[i]`` of ``n``.

    ``tolerance`` is the error that rounding explains, as a share of ``largest``, an entry.
    """

    got: list[Tensor]
    cut: Cut
    ranks: list[int]
    n: int
    largest: float
    tolerance: float

    @property
    def both(self) -> list[tuple[Tensor, Tensor]]:
        return [*zip(self.got, self.cut.pieces, strict=True)]

    @property
    def copies(self) -> list[list[int]]:
        """By block, the places of its holders in ``got``."""
        blocks = self.cut.blocks
        return [[at for at, b in enumerate(blocks) if b == block] for block in {*blocks}]

    def near(self, got: Tensor, want: Tensor, times: float = 1.0) -> bool:
        return size(got - want) <= self.tolerance * self.largest * max(1.0, abs(times))

    def factor(self, got: Tensor, want: Tensor) -> Fraction | float | None:
        """c where got = c · want: the simplest fraction that rounding allows, else a number.

        A single entry is always some number times another: there only a fraction counts.
        """
        square = (want.abs() ** 2).sum().item()
        c = (want.conj() * got).sum().item().real / square if square else 0.0
        if not self.near(got, c * want, c) or size(want) <= self.tolerance * self.largest:
            return None
        if abs(c) <= self.tolerance:
            return Fraction(0)
        for below in range(1, 65):
            found = Fraction(round(c * below), below)
            if abs(found - c) <= self.tolerance * abs(c):
                rare = abs(found.numerator) * below <= min(100, 0.25 / self.tolerance)
                if rare or found in {Fraction(self.n) ** k for k in (-2, -1, 1, 2)}:
                    return found
                break
        return c if want.numel() > 3 else None

    def share(self) -> Fraction | None:
        """What the sum of a block's copies is of the block, if that is the same for each."""
        sums = flat(torch.stack([self.got[at] for at in copies]).sum(0) for copies in self.copies)
        found = self.factor(sums, flat(self.cut.pieces[copies[0]] for copies in self.copies))
        return found if isinstance(found, Fraction) and len(self.copies) < len(self.got) else None

    def times(self, factor: Fraction | float) -> str:
        """``3 times what it should be (3 is n)``."""
        number = str(factor) if isinstance(factor, Fraction) else f"{factor:.4g}"
        known = {self.n: "n", 1 / self.n: "1/n", self.n**2: "n²", 1 / self.n**2: "1/n²"}
        named = f" ({number} is {known[float(factor)]})" if float(factor) in known else ""
        return f"{number} times what it should be{named}" if factor else "zero"

    def standing(self, at: int) -> str:
        """What one rank's tensor is; "" where there is too little to tell by."""
        got, want = self.both[at]
        if self.near(got, want):
            return RIGHT if size(want) > 4 * self.tolerance * self.largest else ""
        found = self.factor(got, want)
        return WRONG if found is None else self.times(found)


def size(t: Tensor) -> float:
    return t.abs().max().item() if t.numel() else 0.0


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def equal(it: Compared) -> str:
    return "within rounding" if all(it.near(got, want) for got, want in it.both) else ""


def none(it: Compared) -> str:
    zero = all(size(got) <= it.tolerance**2 * it.largest for got in it.got)
    return "zero on every rank: no gradient reaches it" if zero else ""


def factor(it: Compared) -> str:
    found = it.factor(flat(it.got), flat(it.cut.pieces))
    return f"{it.times(found)}, on every rank" if found else ""


def sum_missing(it: Compared) -> str:
    """Copies that differ, whose sum is right or a simple fraction of what is right."""
    share = it.share()
    if share == 1:
        zero = [rank for rank, got in zip(it.ranks, it.got, strict=True) if size(got) == 0]
        some = f"; on {ranks_text(zero)} it is zero" if zero else ""
        return f"the ranks hold shares whose sum is right: nobody added them up{some}"
    # copies that are each a multiple of the whole say more by themselves
    told = share and not mean_missing(it) and WRONG in map(it.standing, range(len(it.got)))
    return f"the ranks hold shares, and their sum is {it.times(share)}" if told and share else ""


def mean_missing(it: Compared) -> str:
    mean = it.share() == Fraction(len(it.got), len(it.copies))
    return "the ranks hold values whose mean is right: nobody took it" if mean else ""


def other_part(it: Compared) -> str:
    """Each rank holds a block, and somebody holds another's."""
    if len(it.copies) == 1:
        return ""
    rows = []
    for at, got in enumerate(it.got):
        pieces = [(other, it.cut.pieces[other]) for other in (at, *range(len(it.got)))]
        fits = [o for o, want in pieces if want.shape == got.shape and it.near(got, want)]
        if not fits:
            return ""
        if fits[0] != at:
            rows.append(f"rank {it.ranks[at]} has the part of rank {it.ranks[fits[0]]}")
    return ", ".join(rows)


def some_ranks(it: Compared) -> str:
    found: dict[str, list[int]] = {}
    for at, rank in enumerate(it.ranks):
        found.setdefault(it.standing(at), []).append(rank)
    found.pop("", None)
    if len(found) < 2 or (WRONG in found and RIGHT not in found):
        return ""
    slices = some_rows(it) if WRONG in found else ""
    rows = [f"{what} on {ranks_text(ranks)}" for what, ranks in found.items()]
    return ", ".join(rows) + (f" ({slices})" if slices else "")


def some_rows(it: Compared) -> str:
    """Some slices are right, and so many that it is no chance, or the others share a factor."""
    limit, dims = it.tolerance * it.largest, it.cut.pieces[0].dim()
    ranks = [rank for rank, got in zip(it.ranks, it.got, strict=True) if got.numel()]
    for dim in range(dims):
        gots, wants = (
            [t.movedim(dim, 0).reshape(t.shape[dim], -1) for t in side if t.numel()]
            for side in (it.got, it.cut.pieces)
        )
        off = [(g - w).abs().amax(1) > limit for g, w in zip(gots, wants, strict=True)]
        telling = [w.abs().amax(1) > 4 * limit for w in wants]
        right = sum(int((t & ~o).sum()) for t, o in zip(telling, off, strict=True))
        wrong = sum(int(o.sum()) for o in off)
        sides = (flat(t[o] for t, o in zip(side, off, strict=True)) for side in (gots, wants))
        common = it.factor(*sides)
        if right and (right >= wrong or isinstance(common, Fraction)):
            name = NAMES.get((dims, dim), f"dimension {dim}'s slice")
            found: dict[str, list[int]] = {}
            for rank, o in zip(ranks, off, strict=True):
                if places := o.nonzero().flatten().tolist():
                    found.setdefault(ranks_text(places).replace("rank", name), []).append(rank)
            said = " and ".join(f"{rows} on {ranks_text(held)}" for rows, held in found.items())
            how = WRONG if common is None else it.times(common)
            return f"{said}: {how}; the others are right"
    return ""


def differs(it: Compared) -> str:
    errors = [size(got - want) for got, want in it.both]
    agree = all(it.near(it.got[c[0]], it.got[at]) for c in it.copies for at in c)
    where = f"most on rank {it.ranks[errors.index(max(errors))]}"
    if len(it.copies) < len(it.got):
        where = f"copies on different ranks {'agree' if agree else 'differ'}"
    return f"by up to {max(errors):.2g}, where the largest entry is {it.largest:.2g}; {where}"


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
VAGUE = ("none", "some-ranks", "some-rows", "differs")  # what rounding alone may look like


def kind_of(by_cut: list[Compared]) -> tuple[str, str]:
    """The coarsest kind that holds in the light of any cut, and its sentence."""
    for kind, says in KINDS.items():
        for it in by_cut if kind != "differs" else by_cut[:1]:
            if text := says(it):
                return kind, text
    raise AssertionError("tensors that do not differ are equal")
