"""Finds how a tensor is cut over the ranks, and lays the whole beside what the ranks have of it.

If the places of the pieces are known (pieces.py), there is one cut. If not, shapes have to tell:
``guess_cuts`` gives every cut below whose pieces have the shapes that are there. Several can fit:
four ranks with one half each may hold halves 0, 1, 0, 1 or 0, 0, 1, 1. The plainest comes first,
and kinds.py tries one after another.

    whole on every rank          [ 0 1 2 3 ] [ 0 1 2 3 ]
    blocks along a dimension     [ 0 1 ] [ 2 3 ]      of any lengths, some of them 0
    blocks of fused layers       [ 0 2 ] [ 1 3 ]      each layer is cut, its blocks stand together
    several copies of a block    [ 0 1 ] [ 2 3 ] [ 0 1 ] [ 2 3 ]
    a grid                       blocks along two dimensions, all of one size
    flat                         blocks of the flattened tensor; zeros may pad the last ones
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise, permutations, product
from typing import NamedTuple

import torch
from torch import Tensor

from course_tools.gradient_comparison.pieces import Piece, Place, Runs

# The lengths of layers that are fused in one tensor, in proportion: one layer; gate and up; query,
# key and value; the same if 2, 4 or 8 queries share a key.
FUSED = ((1,), (1, 1), (1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1))
ENTRIES = 1 << 16  # in a tile, at most: what is computed from one stays small


class Cut(NamedTuple):
    """The whole (flattened if the ranks hold it flat), and by rank the part that it should hold."""

    whole: Tensor
    places: dict[int, Place]


class Tile(NamedTuple):
    """A part of the whole that begins at ``start``, and what the ranks that hold it have there."""

    start: tuple[int, ...]
    want: Tensor
    got: dict[int, Tensor]


def shape_of(place: Place) -> tuple[int, ...]:
    """The shape of a piece at this place."""
    return tuple(sum(end - start for start, end in runs) for runs in place)


def cut_by_places(whole: Tensor, pieces: Mapping[int, Piece]) -> list[Cut]:
    """Cut by the places of the pieces; no cut if one of them is no place in ``whole``."""
    places = {rank: piece.place for rank, piece in pieces.items() if piece.place is not None}
    if {*map(len, places.values())} == {1}:
        whole = whole.flatten()
    for rank, place in places.items():
        ends = (max((end for _, end in runs), default=0) for runs in place)
        inside = len(place) == whole.dim() and all(map(int.__le__, ends, whole.shape))
        tensor = pieces[rank].tensor
        if not inside or (tensor is not None and tensor.shape != shape_of(place)):
            return []
    return [Cut(whole, places)]


def guess_cuts(whole: Tensor, tensors: Mapping[int, Tensor]) -> list[Cut]:
    """Guess how ``whole`` was cut into tensors of these shapes; the plainest guess comes first."""
    shapes = [t.shape for t in tensors.values()]
    found: dict[str, Cut] = {}
    for from_whole, places in _try_cuts(whole, shapes) if shapes else ():
        if [*map(shape_of, places)] == shapes:
            cut = Cut(from_whole, dict(zip(tensors, places, strict=True)))
            found.setdefault(str(places), cut)
    return [*found.values()]


def _try_cuts(whole: Tensor, shapes: list[torch.Size]) -> Iterator[tuple[Tensor, list[Place]]]:
    """Every way to cut ``whole`` for so many ranks; not all give the shapes that are wanted."""
    n, numels = len(shapes), [shape.numel() for shape in shapes]
    everything: Place = tuple(((0, length),) if length else () for length in whole.shape)

    def cut(dim: int, runs: Runs, place: Place = everything) -> Place:
        return (*place[:dim], runs, *place[dim + 1 :])

    if all(shape == whole.shape for shape in shapes):
        yield whole, [everything] * n
        return
    if {*map(len, shapes)} == {whole.dim()}:
        for dim in range(whole.dim()):
            for found in _deal(whole.shape[dim], [shape[dim] for shape in shapes], FUSED):
                yield whole, [cut(dim, runs) for runs in found]
        for a, b in permutations(range(whole.dim()) if all(numels) else (), 2):
            rows, columns = (range(0, whole.shape[dim], shapes[0][dim]) for dim in (a, b))
            cells = [((r, r + rows.step), (c, c + columns.step)) for r in rows for c in columns]
            if len(cells) == n and whole.numel() == n * numels[0]:
                yield whole, [cut(a, (row,), cut(b, (column,))) for row, column in cells]
    if {*map(len, shapes)} == {1}:
        flat = whole.flatten()
        missing = sum(numels) - flat.numel()
        if missing > 0 and {*numels} == {-(-flat.numel() // n)}:
            flat = torch.cat([flat, flat.new_zeros(missing)])
        for found in _deal(flat.numel(), numels, FUSED[:1]):
            yield flat, [(runs,) for runs in found]


def _deal(total: int, sizes: list[int], fused: Sequence[Sequence[int]]) -> Iterator[list[Runs]]:
    """Deal blocks of these sizes to the ranks: each block to one rank, or each to equally many."""
    n = len(sizes)
    for k in (k for k in range(n, 0, -1) if n % k == 0):
        dealt, side_by_side = [r % k for r in range(n)], [r * k // n for r in range(n)]
        for order, layers in product([dealt, side_by_side], fused):
            lengths = [sizes[order.index(block)] for block in range(k)]
            each = [length * of // sum(layers) for of in layers for length in lengths]
            runs = [*pairwise(accumulate(each, initial=0))]
            if sum(each) == total:
                blocks = [tuple(run for run in runs[b::k] if run[0] < run[1]) for b in range(k)]
                yield [blocks[block] for block in order]


def cut_up(cut: Cut, got: Mapping[int, Tensor]) -> list[Tile]:
    """Cut all of the whole into tiles. A rank that has some of a tile has all of it."""
    edges = _edges_of_tiles(cut, got)
    own = {rank: [*map(_own_indices, edges, cut.places[rank])] for rank in got}
    found = []
    for cell in product(*map(pairwise, edges)):
        held = {}
        for rank, t in got.items():
            at = [indices.get(run) for indices, run in zip(own[rank], cell, strict=True)]
            if None not in at:
                held[rank] = t[tuple(at)]
        want = cut.whole[tuple(slice(*run) for run in cell)]
        found.append(Tile(tuple(start for start, _ in cell), want, held))
    return found


def _edges_of_tiles(cut: Cut, got: Mapping[int, Tensor]) -> list[list[int]]:
    """By dimension, where tiles begin and end: where a rank's runs do, and after enough entries."""
    edges: list[list[int]] = []
    room = ENTRIES
    for dim, length in reversed([*enumerate(cut.whole.shape)]):
        ends = {edge for rank in got for run in cut.places[rank][dim] for edge in run}
        edges.insert(0, sorted({*range(0, length, room), length, *ends}))
        room = max(1, room // max(1, length))
    return edges


def _own_indices(edges: list[int], runs: Runs) -> dict[tuple[int, int], slice]:
    """By pair of neighbouring edges, the slice of a rank's own tensor that lies between them."""
    found, begin = {}, 0
    for start, end in runs:
        for a, b in pairwise(edges[bisect_left(edges, start) : bisect_right(edges, end)]):
            found[a, b] = slice(begin + a - start, begin + b - start)
        begin += end - start
    return found
