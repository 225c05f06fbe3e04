"""How a tensor lies on the ranks, as far as its shapes tell.

A cut says which piece of the whole each rank should hold. Several can fit the same shapes: four
ranks with one half each may hold halves 0, 1, 0, 1 or 0, 0, 1, 1. The plainest comes first, and
whoever compares tries one after another.

    whole on every rank          [ 0 1 2 3 ] [ 0 1 2 3 ]
    blocks along a dimension     [ 0 1 ] [ 2 3 ]      of any lengths, some of them 0
    blocks of fused layers       [ 0 2 ] [ 1 3 ]      each layer is cut, its blocks stand together
    several copies of a block    [ 0 1 ] [ 2 3 ] [ 0 1 ] [ 2 3 ]
    a grid                       blocks along two dimensions, all of one size
    flat                         blocks of the flattened tensor; zeros may pad the last ones
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

FUSED = (2, 3)  # gate and up; query, key and value
Shapes = Sequence[torch.Size]


@dataclass(frozen=True)
class Cut:
    """What each rank should hold: ranks with the same number in ``blocks`` hold copies."""

    how: str
    pieces: list[Tensor]
    blocks: list[int]

    @property
    def copies(self) -> dict[int, list[int]]:
        """By block, the places of its holders in ``pieces``."""
        return {b: [at for at, c in enumerate(self.blocks) if c == b] for b in self.blocks}


def cuts(whole: Tensor, shapes: Shapes) -> list[Cut]:
    """Every known cut of ``whole`` into tensors of these shapes, the plainest first."""
    if all(shape == whole.shape for shape in shapes):
        return [Cut("whole on every rank", [whole] * len(shapes), [0] * len(shapes))]
    found: list[Cut] = []
    for dim in range(whole.dim()):
        found += _along(whole, shapes, dim, f"in blocks along dimension {dim}")
    return [*found, *_grid(whole, shapes), *_flat(whole, shapes)]


def _along(whole: Tensor, shapes: Shapes, dim: int, how: str) -> Iterator[Cut]:
    """Cuts along one dimension, where the others are all there."""
    if any(_others(shape, dim) != _others(whole.shape, dim) for shape in shapes):
        return
    sizes = [shape[dim] for shape in shapes]
    for blocks in _owners(sizes, whole.shape[dim]):
        lengths = [sizes[blocks.index(b)] for b in range(max(blocks) + 1)]
        yield _blocks(whole, dim, lengths, blocks, how)
        for layers in FUSED:
            if all(length % layers == 0 for length in lengths):
                yield _fused(whole, dim, lengths, blocks, how, layers)


def _others(shape: torch.Size, dim: int) -> list[int]:
    return [size for at, size in enumerate(shape) if at != dim] if dim < len(shape) else [-1]


def _owners(sizes: list[int], length: int) -> Iterator[list[int]]:
    """Which block each rank has, where blocks of these sizes make up the length m times."""
    n, total = len(sizes), sum(sizes)
    m = total // length if length and total % length == 0 else 0
    if not m or n % m:
        return
    k = n // m  # blocks
    orders = [[r % k for r in range(n)], [r // m for r in range(n)]]
    for blocks in orders if 1 < m < n else orders[:1]:
        if sizes == [sizes[blocks.index(b)] for b in blocks]:
            yield blocks


def _blocks(whole: Tensor, dim: int, lengths: list[int], blocks: list[int], how: str) -> Cut:
    pieces = whole.split(lengths, dim)
    return Cut(how, [pieces[b] for b in blocks], blocks)


def _fused(
    whole: Tensor, dim: int, lengths: list[int], blocks: list[int], how: str, layers: int
) -> Cut:
    """Each of several layers that lie in one tensor is cut by itself."""
    each = [length // layers for length in lengths]
    parts = [layer.split(each, dim) for layer in whole.tensor_split(layers, dim)]
    pieces = [torch.cat(part, dim) for part in zip(*parts, strict=True)]
    return Cut(f"{how}, of each of {layers} fused layers", [pieces[b] for b in blocks], blocks)


def _grid(whole: Tensor, shapes: Shapes) -> Iterator[Cut]:
    """Blocks along two dimensions, one for each rank, in the order of a mesh."""
    n, (shape, *rest) = len(shapes), shapes
    if len(shape) != whole.dim() or any(other != shape for other in rest):
        return
    times = [w // s if s and w % s == 0 else 0 for w, s in zip(whole.shape, shape, strict=True)]
    for a, b in combinations(range(whole.dim()), 2):
        if times[a] * times[b] == n and sorted(times)[-2:] == sorted((times[a], times[b])):
            for one, two in ((a, b), (b, a)):
                rows = whole.split(shape[one], one)
                pieces = [piece for row in rows for piece in row.split(shape[two], two)]
                yield Cut(f"in blocks along dimensions {one} and {two}", pieces, list(range(n)))


def _flat(whole: Tensor, shapes: Shapes) -> Iterator[Cut]:
    """Blocks of the flattened tensor; where all have the same length, zeros may pad the last."""
    if any(len(shape) != 1 for shape in shapes):
        return
    flat, sizes = whole.flatten(), [shape[0] for shape in shapes]
    missing = sum(sizes) - flat.numel()
    if missing > 0 and set(sizes) == {-(-flat.numel() // len(sizes))}:
        flat = torch.cat([flat, flat.new_zeros(missing)])
        yield _blocks(flat, 0, sizes, list(range(len(sizes))), "in flat blocks, padded by zeros")
        return
    for blocks in _owners(sizes, flat.numel()):
        lengths = [sizes[blocks.index(b)] for b in range(max(blocks) + 1)]
        yield _blocks(flat, 0, lengths, blocks, "in flat blocks")
