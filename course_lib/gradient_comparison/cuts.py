"""How a tensor may lie on the ranks: every known cut whose pieces have the shapes that are there.

Several can fit: four ranks with one half each may hold halves 0, 1, 0, 1 or 0, 0, 1, 1. The
plainest comes first, and whoever compares tries one after another.

    whole on every rank          [ 0 1 2 3 ] [ 0 1 2 3 ]
    blocks along a dimension     [ 0 1 ] [ 2 3 ]      of any lengths, some of them 0
    blocks of fused layers       [ 0 2 ] [ 1 3 ]      each layer is cut, its blocks stand together
    several copies of a block    [ 0 1 ] [ 2 3 ] [ 0 1 ] [ 2 3 ]
    a grid                       blocks along two dimensions, all of one size
    flat                         blocks of the flattened tensor; zeros may pad the last ones
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor

FUSED = (1, 2, 3)  # one layer; gate and up; query, key and value


class Cut(NamedTuple):
    """What each rank should hold; ranks with the same number in ``blocks`` hold copies."""

    pieces: list[Tensor]
    blocks: list[int]


def cuts(whole: Tensor, shapes: Sequence[torch.Size]) -> list[Cut]:
    """Every known cut of ``whole`` into tensors of these shapes, the plainest first."""
    if all(shape == whole.shape for shape in shapes):
        return [Cut([whole] * len(shapes), [0] * len(shapes))]
    tried = _all(whole, shapes, {len(shape) for shape in shapes})
    return [cut for cut in tried if [piece.shape for piece in cut.pieces] == [*shapes]]


def _all(whole: Tensor, shapes: Sequence[torch.Size], dims: set[int]) -> Iterator[Cut]:
    n, numels = len(shapes), [shape.numel() for shape in shapes]
    if dims == {whole.dim()}:
        for dim in range(whole.dim()):
            yield from _blocks(whole, [shape[dim] for shape in shapes], dim, FUSED)
        for a, b in permutations(range(whole.dim()), 2):
            if whole.numel() == n * numels[0] > 0:
                rows = whole.split(shapes[0][a], a)
                pieces = [piece for row in rows for piece in row.split(shapes[0][b], b)]
                yield Cut(pieces, [*range(n)])
    if dims == {1}:
        length, missing = -(-whole.numel() // n), sum(numels) - whole.numel()
        padding = whole.new_zeros(missing if {*numels} == {length} else 0)
        yield from _blocks(torch.cat([whole.flatten(), padding]), numels, 0, FUSED[:1])


def _blocks(whole: Tensor, sizes: list[int], dim: int, fused: Sequence[int]) -> Iterator[Cut]:
    """Blocks of these sizes by rank, each of them on one rank or on equally many."""
    n = len(sizes)
    for k in (k for k in range(n, 0, -1) if n % k == 0):
        for order in dict.fromkeys(
            (tuple(r % k for r in range(n)), tuple(r * k // n for r in range(n)))
        ):
            lengths = [sizes[order.index(block)] for block in range(k)]
            for layers in fused:
                each = [length // layers for length in lengths]
                if sum(each) * layers == whole.shape[dim]:
                    parts = [t.split(each, dim) for t in whole.tensor_split(layers, dim)]
                    pieces = [torch.cat(part, dim) for part in zip(*parts, strict=True)]
                    yield Cut([pieces[block] for block in order], [*order])
