"""What the tensors on the ranks are to the pieces that they should be: a kind, and a sentence.

Every function below knows one kind. It looks at the tensors in the light of one cut, and returns
its sentence, or "" where it has nothing to say. The first that says something, wins.

Tensors may be large, so nothing here holds a copy of one: every question goes through the tiles of
cuts.py, and stops at the first tile that answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from itertools import compress, groupby

import torch
from torch import Tensor

from course_lib.diagnosis.lines import ranks_text
from course_tools.gradient_comparison.cuts import Cut, Tile, shape_of, tiles

RIGHT, WRONG = "right", "wrong"
NAMES = {(1, 0): "element", (2, 0): "row", (2, 1): "column"}  # by how many dimensions, and which
Pairs = Callable[[], Iterable[tuple[Tensor, Tensor]]]  # what is there, what should be


@dataclass(frozen=True)
class Compared:
    """The tensors of one name beside the whole in the light of one cut, on ranks of ``n``.

    ``tolerance`` is the error that rounding explains, as a share of ``largest``, an entry.
    ``mesh`` has the ranks' coordinates by mesh dimension, where they are known.
    """

    got: dict[int, Tensor]
    cut: Cut
    n: int
    largest: float
    tolerance: float
    mesh: dict[str, dict[int, int]]
    tiles: list[Tile]

    @property
    def limit(self) -> float:
        return self.tolerance * self.largest

    def lines(self, tile: Tile, over: str) -> list[list[int]]:
        """A tile's holders, parted into those along a mesh dimension; all of them for ""."""
        others = [at for name, at in self.mesh.items() if over and name != over]
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in tile.got:
            found.setdefault(tuple(at[rank] for at in others), []).append(rank)
        return [*found.values()]

    def sums(self, over: str) -> Pairs:
        """For each tile, what the ranks of a line have together."""
        return lambda: (
            (reduce(torch.add, (wide(tile.got[rank]) for rank in line)), wide(tile.want))
            for tile in self.tiles
            for line in self.lines(tile, over)
        )

    def each(self, *ranks: int) -> Pairs:
        """One by one, what these ranks have, or all of them."""
        return lambda: (
            (wide(got), wide(tile.want))
            for tile in self.tiles
            for rank, got in tile.got.items()
            if rank in ranks or not ranks
        )

    def near(self, pairs: Pairs, times: float = 1.0) -> bool:
        limit = self.limit * max(1.0, abs(times))
        return all(size(torch.sub(got, want, alpha=times)) <= limit for got, want in pairs())

    def factor(self, pairs: Pairs) -> Fraction | float | None:
        """c where got = c · want: the simplest fraction that rounding allows, else a number.

        A single entry is always some number times another: there only a fraction counts.
        """
        square = common = largest = 0.0
        numel = 0
        for got, want in pairs():
            flat = want.flatten()
            own = torch.vdot(flat, flat).real.item()
            both = torch.vdot(flat, got.flatten().to(flat.dtype)).real.item()
            if size(want) > self.limit:
                c = both / own
                if size(torch.sub(got, want, alpha=c)) > 4 * self.limit * max(1.0, abs(c)):
                    return None  # no need to look at the rest
            square, common = square + own, common + both
            largest, numel = max(largest, size(want)), numel + want.numel()
        c = common / square if square else 0.0
        if largest <= self.limit or not self.near(pairs, c):
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
        return c if numel > 3 else None

    @cached_property
    def shares(self) -> list[tuple[str, int, Fraction]]:
        """What sums of copies are of what each should be, where that is the same for all: those
        along a mesh dimension, and of all copies. With its name, and how many are summed."""
        found = []
        for over in [*self.mesh, ""]:
            lines = [line for tile in self.tiles for line in self.lines(tile, over)]
            # ranks of a mesh that this parameter's does not have lie at one place of it
            at = self.mesh[over] if over else {rank: rank for rank in self.got}
            if any(len({at[rank] for rank in line}) < len(line) for line in lines):
                continue
            counts = {len(line) for line in lines}
            share = self.factor(self.sums(over)) if len(counts) == 1 and max(counts) > 1 else None
            if isinstance(share, Fraction):
                found.append((f" over {over}" if over else "", max(counts), share))
        return found

    def times(self, factor: Fraction | float) -> str:
        """``3 times what it should be (3 is n)``."""
        if not factor:
            return "zero"
        number = str(factor) if isinstance(factor, Fraction) else f"{factor:.4g}"
        known = {self.n: "n", 1 / self.n: "1/n", self.n**2: "n²", 1 / self.n**2: "1/n²"}
        size = max(factor, 1 / factor)
        dims = " or ".join(dim for dim, at in self.mesh.items() if size == 1 + max(at.values()))
        if dims:
            known.setdefault(float(factor), f"{'1 / ' if factor < 1 else ''}the size of {dims}")
        named = f" ({number} is {known[float(factor)]})" if float(factor) in known else ""
        return f"{number} times what it should be{named}"

    @cached_property
    def standings(self) -> dict[int, str]:
        """What each rank's tensor is; "" where there is too little to tell by."""
        return {rank: self._standing(self.each(rank)) for rank in self.got}

    def _standing(self, pairs: Pairs) -> str:
        if self.near(pairs):
            telling = any(size(want) > 4 * self.limit for _, want in pairs())
            return RIGHT if telling else ""
        found = self.factor(pairs)
        return WRONG if found is None else self.times(found)


def wide(t: Tensor) -> Tensor:
    """In a dtype in which nothing is lost where two are subtracted."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def size(t: Tensor) -> float:
    """Its largest entry; NaN where one is."""
    return t.abs().max().item() if t.numel() else 0.0


def equal(it: Compared) -> str:
    return "within rounding" if it.near(it.each()) else ""


def none(it: Compared) -> str:
    zero = all(size(got) <= it.tolerance**2 * it.largest for got in it.got.values())
    return "zero on every rank: no gradient reaches it" if zero else ""


def factor(it: Compared) -> str:
    found = it.factor(it.each())
    return f"{it.times(found)}, on every rank" if found else ""


def sum_missing(it: Compared) -> str:
    """Copies that differ, whose sum is right or a simple fraction of what is right."""
    for over, _, share in it.shares:
        if share == 1:
            zero = [rank for rank, got in it.got.items() if size(got) == 0]
            some = f"; on {ranks_text(zero)} it is zero" if zero else ""
            return f"the ranks hold shares whose sum{over} is right: nobody added them up{some}"
    # copies that are each a multiple of the whole say more by themselves
    if mean_missing(it) or WRONG not in it.standings.values():
        return ""
    for over, _, share in it.shares:
        if share:
            return f"the ranks hold shares, and their sum{over} is {it.times(share)}"
    return ""


def mean_missing(it: Compared) -> str:
    for over, count, share in it.shares:
        if share == count:
            return f"the ranks hold values whose mean{over} is right: nobody took it"
    return ""


def other_part(it: Compared) -> str:
    """Each rank holds a block, and somebody holds another's."""
    places, rows = it.cut.places, []
    if len({*places.values()}) == 1:
        return ""
    for rank, got in it.got.items():
        for other in (rank, *it.got):
            cut = Cut(it.cut.whole, {rank: places[other]})
            fits = shape_of(places[other]) == got.shape
            if fits and it.near(replace(it, tiles=tiles(cut, {rank: got})).each(rank)):
                break
        else:
            return ""
        if rank != other:
            rows.append(f"rank {rank} has the part of rank {other}")
    return ", ".join(rows)


def some_ranks(it: Compared) -> str:
    found: dict[str, list[int]] = {}
    for rank, standing in it.standings.items():
        found.setdefault(standing, []).append(rank)
    found.pop("", None)
    if len(found) < 2 or (WRONG in found and RIGHT not in found):
        return ""
    slices = some_rows(it) if WRONG in found else ""
    rows = [f"{what} on {ranks_text(ranks)}" for what, ranks in found.items()]
    return ", ".join(rows) + (f" ({slices})" if slices else "")


def some_rows(it: Compared) -> str:
    """Some slices are right, and so many that it is no chance, or the others have a cause."""
    dims = it.cut.whole.dim()
    for dim in range(dims):
        name = NAMES.get((dims, dim), f"dimension {dim}'s slice")
        off, right = _off(it, dim)
        common = (those := _only(it, dim, off)).factor(those.each())
        how = "" if common is None else it.times(common)
        if common is None:
            shared = _only(it, dim, off, copies=True)
            how = sum_missing(shared) or mean_missing(shared)
        wrong = sum(int(mask.sum()) for mask in off.values())
        if right and (right >= wrong or (how and not isinstance(common, float))):
            found: dict[str, list[int]] = {}
            for rank, mask in off.items():
                if places := mask.nonzero().flatten().tolist():
                    said = ranks_text(places).replace("rank", name)
                    found.setdefault(said, []).append(rank)
            said = " and ".join(f"{rows} on {ranks_text(held)}" for rows, held in found.items())
            return f"{said}: {how or WRONG}; the others are right"
    return ""


def _only(it: Compared, dim: int, off: dict[int, Tensor], copies: bool = False) -> Compared:
    """The slices that a rank has wrong, on this rank; with ``copies``, on all that hold them."""
    found = []
    for tile in it.tiles:
        start, length = tile.start[dim], tile.want.shape[dim]
        masks = torch.stack([off[rank][start : start + length] for rank in tile.got], dim=1)
        # slices that stand side by side and are wrong on the same ranks are looked at together
        for wrong, run in groupby(enumerate(masks.tolist()), key=lambda slice_: slice_[1]):
            if any(wrong):
                first, *others = (at for at, _ in run)
                cut = (dim, first, 1 + len(others))
                held = tile.got if copies else compress(tile.got, wrong)
                got = {rank: tile.got[rank].narrow(*cut) for rank in held}
                found.append(Tile(tile.start, tile.want.narrow(*cut), got))
    return replace(it, tiles=found)


def _off(it: Compared, dim: int) -> tuple[dict[int, Tensor], int]:
    """By rank, which slices of the whole it has wrong; how many are right, and not next to zero."""
    length = it.cut.whole.shape[dim]
    off = {rank: torch.zeros(length, dtype=torch.bool) for rank in it.got}
    telling = {rank: mask.clone() for rank, mask in off.items()}
    for tile in it.tiles:
        here = slice(tile.start[dim], tile.start[dim] + tile.want.shape[dim])
        want = _as_rows(tile.want, dim)
        for rank, got in tile.got.items():
            off[rank][here] |= (_as_rows(got, dim) - want).abs().amax(1) > it.limit
            telling[rank][here] |= want.abs().amax(1) > 4 * it.limit
    return off, sum(int((telling[rank] & ~off[rank]).sum()) for rank in off)


def _as_rows(t: Tensor, dim: int) -> Tensor:
    """The slices of a dimension, each a row."""
    return wide(t.movedim(dim, 0).reshape(t.shape[dim], -1))


def differs(it: Compared) -> str:
    errors = {rank: max((size(g - w) for g, w in it.each(rank)()), default=0.0) for rank in it.got}
    where = f"most on rank {max(errors, key=lambda rank: errors[rank])}"
    copied = [[*tile.got.values()] for tile in it.tiles if len(tile.got) > 1]
    if copied:
        agree = all(
            size(wide(t) - wide(first)) <= it.limit for first, *others in copied for t in others
        )
        where = f"copies on different ranks {'agree' if agree else 'differ'}"
    most = max(errors.values())
    return f"by up to {most:.2g}, where the largest entry is {it.largest:.2g}; {where}"


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
