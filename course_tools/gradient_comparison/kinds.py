"""Compares the tensors on the ranks with what they should be: finds a kind, and a sentence.

Every function in KINDS knows one kind. It is given the tensors and one cut, and returns its
sentence, or "" if the kind does not hold. ``find_kind`` asks them in order; the first answer wins.

Tensors may be large, so nothing here copies a whole one: every question goes through the tiles of
cuts.py, and stops at the first tile that answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from itertools import compress, pairwise

import torch
from torch import Tensor

from course_lib.diagnosis.lines import ranks_text
from course_tools.gradient_comparison.cuts import Cut, Tile, cut_up, shape_of

RIGHT, WRONG = "right", "wrong"
SCATTERED = 20_000  # beginnings and ends of stretches of wrong slices
NAMES = {(1, 0): "element", (2, 0): "row", (2, 1): "column"}  # by how many dimensions, and which
Pairs = Callable[[], Iterable[tuple[Tensor, Tensor]]]  # what is there, what should be


@dataclass(frozen=True)
class Compared:
    """The tensors of one name, and what they should be if this cut is the one.

    ``n`` is the number of all ranks; some may have no such tensor. ``tolerance`` is the error that
    rounding explains, as a share of ``largest``, the whole's largest entry. ``mesh`` has the ranks'
    coordinates by mesh dimension, if they are known.
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

    def line_up(self, tile: Tile, over: str) -> list[list[int]]:
        """Line up the holders of a tile along the mesh dimension ``over``; for "", all in one."""
        others = [at for name, at in self.mesh.items() if over and name != over]
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in tile.got:
            found.setdefault(tuple(at[rank] for at in others), []).append(rank)
        return [*found.values()]

    def sums(self, over: str) -> Pairs:
        """Pair the sum over each line of ranks with what a rank should hold, tile by tile."""
        return lambda: (
            (reduce(torch.add, (widen(tile.got[rank]) for rank in line)), widen(tile.want))
            for tile in self.tiles
            for line in self.line_up(tile, over)
        )

    def each(self, *ranks: int) -> Pairs:
        """Pair what each of these ranks has (without any named, all) with what it should hold."""
        return lambda: (
            (widen(got), widen(tile.want))
            for tile in self.tiles
            for rank, got in tile.got.items()
            if rank in ranks or not ranks
        )

    def is_near(self, pairs: Pairs, times: float = 1.0) -> bool:
        """Whether got = times · want, within rounding."""
        limit = self.limit * max(1.0, abs(times))
        return all(peak(torch.sub(got, want, alpha=times)) <= limit for got, want in pairs())

    def solve(self, pairs: Pairs) -> Fraction | float | None:
        """Solve got = c · want for c: the simplest fraction that rounding allows, else a number.

        None if there is no such c. One entry is always some number times another, so tensors of
        three entries or fewer need a fraction.
        """
        square = common = largest = 0.0
        numel = 0
        for got, want in pairs():
            flat = want.flatten()
            own = torch.vdot(flat, flat).real.item()
            both = torch.vdot(flat, got.flatten().to(flat.dtype)).real.item()
            if peak(want) > self.limit:
                c = both / own
                if peak(torch.sub(got, want, alpha=c)) > 4 * self.limit * max(1.0, abs(c)):
                    return None  # no need to look at the rest
            square, common = square + own, common + both
            largest, numel = max(largest, peak(want)), numel + want.numel()
        c = common / square if square else 0.0
        if largest <= self.limit or not self.is_near(pairs, c):
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
        """The sums of copies that are a fraction of what each copy should be.

        Copies are summed along each mesh dimension, and all together. For each sum that is: its
        words, how many copies it has, and the fraction.
        """
        found = []
        for over in [*self.mesh, ""]:
            lines = [line for tile in self.tiles for line in self.line_up(tile, over)]
            # If two ranks of a line have the same coordinate, they do not lie along this dimension.
            at = self.mesh[over] if over else {rank: rank for rank in self.got}
            if any(len({at[rank] for rank in line}) < len(line) for line in lines):
                continue
            counts = {len(line) for line in lines}
            share = self.solve(self.sums(over)) if len(counts) == 1 and max(counts) > 1 else None
            if isinstance(share, Fraction):
                found.append((f" over {over}" if over else "", max(counts), share))
        return found

    def say_times(self, factor: Fraction | float) -> str:
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
        """By rank: right, wrong or a factor; "" if its entries are all too small to tell."""
        return {rank: self._judge(self.each(rank)) for rank in self.got}

    def _judge(self, pairs: Pairs) -> str:
        if self.is_near(pairs):
            telling = any(peak(want) > 4 * self.limit for _, want in pairs())
            return RIGHT if telling else ""
        found = self.solve(pairs)
        return WRONG if found is None else self.say_times(found)


def widen(t: Tensor) -> Tensor:
    """Give a tensor a dtype in which a difference of two loses nothing."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def peak(t: Tensor) -> float:
    """The absolute value of the largest entry; NaN if one is."""
    return t.abs().max().item() if t.numel() else 0.0


def equal(it: Compared) -> str:
    return "within rounding" if it.is_near(it.each()) else ""


def none(it: Compared) -> str:
    zero = all(peak(got) <= it.tolerance**2 * it.largest for got in it.got.values())
    return "zero on every rank: no gradient reaches it" if zero else ""


def factor(it: Compared) -> str:
    found = it.solve(it.each())
    return f"{it.say_times(found)}, on every rank" if found else ""


def sum_missing(it: Compared) -> str:
    """Copies that differ, whose sum is right or a simple fraction of what is right."""
    for over, _, share in it.shares:
        if share == 1:
            zero = [rank for rank, got in it.got.items() if peak(got) == 0]
            some = f"; on {ranks_text(zero)} it is zero" if zero else ""
            return f"the ranks hold shares whose sum{over} is right: nobody added them up{some}"
    # If each copy is a multiple of the whole, some_ranks says more.
    if mean_missing(it) or WRONG not in it.standings.values():
        return ""
    for over, _, share in it.shares:
        if share:
            return f"the ranks hold shares, and their sum{over} is {it.say_times(share)}"
    return ""


def mean_missing(it: Compared) -> str:
    for over, count, share in it.shares:
        if share == count:
            return f"the ranks hold values whose mean{over} is right: nobody took it"
    return ""


def other_part(it: Compared) -> str:
    """Each rank holds some rank's block, and not all hold their own."""
    places, rows = it.cut.places, []
    if len({*places.values()}) == 1:
        return ""
    for rank, got in it.got.items():
        for other in (rank, *it.got):
            cut = Cut(it.cut.whole, {rank: places[other]})
            fits = shape_of(places[other]) == got.shape
            if fits and it.is_near(replace(it, tiles=cut_up(cut, {rank: got})).each(rank)):
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
    """Some slices are right: at least as many as are wrong, or the wrong ones have one cause."""
    dims = it.cut.whole.dim()
    for dim in range(dims):
        name = NAMES.get((dims, dim), f"dimension {dim}'s slice")
        off, right = _find_off(it, dim)
        if sum(int(mask.diff().sum()) for mask in off.values()) > SCATTERED:
            continue  # no cause leaves so many stretches, and each would be looked at
        wrong_ones = _keep(it, dim, off)
        common = wrong_ones.solve(wrong_ones.each())
        how = "" if common is None else it.say_times(common)
        if common is None:
            shared = _keep(it, dim, off, copies=True)
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


def _keep(it: Compared, dim: int, off: dict[int, Tensor], copies: bool = False) -> Compared:
    """Keep the slices that are wrong, on the ranks that have them wrong; or on all (``copies``)."""
    found = []
    for tile in it.tiles:
        start, length = tile.start[dim], tile.want.shape[dim]
        masks = torch.stack([off[rank][start : start + length] for rank in tile.got], dim=1)
        # Neighbouring slices that are wrong on the same ranks make one tile.
        changes = (masks[1:] != masks[:-1]).any(1).nonzero().flatten() + 1
        for first, end in pairwise([0, *changes.tolist(), length]):
            if any(wrong := masks[first].tolist()):
                cut = (dim, first, end - first)
                held = tile.got if copies else compress(tile.got, wrong)
                got = {rank: tile.got[rank].narrow(*cut) for rank in held}
                found.append(Tile(tile.start, tile.want.narrow(*cut), got))
    return replace(it, tiles=found)


def _find_off(it: Compared, dim: int) -> tuple[dict[int, Tensor], int]:
    """Find by rank the slices that are wrong; and how many are right, and not next to zero."""
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
    """Turn each slice of a dimension into a row."""
    return widen(t.movedim(dim, 0).reshape(t.shape[dim], -1))


def differs(it: Compared) -> str:
    errors = {rank: max((peak(g - w) for g, w in it.each(rank)()), default=0.0) for rank in it.got}
    where = f"most on rank {max(errors, key=lambda rank: errors[rank])}"
    copied = [[*tile.got.values()] for tile in it.tiles if len(tile.got) > 1]
    if copied:
        agree = all(
            peak(widen(t) - widen(first)) <= it.limit for first, *others in copied for t in others
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


def find_kind(by_cut: list[Compared]) -> tuple[str, str]:
    """Find the first kind that holds for any of the cuts, and its sentence."""
    for kind, says in KINDS.items():
        for it in by_cut if kind != "differs" else by_cut[:1]:
            if text := says(it):
                return kind, text
    raise AssertionError("tensors that do not differ are equal")
