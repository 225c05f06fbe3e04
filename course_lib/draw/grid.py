"""Who has what: values rank by rank, before and after, or step by step.

The colour of a cell says where its value comes from. It is the colour of the rank that alone had
this value in the first grid; white if several ranks had it; grey if it is new. So give every rank
values of its own: 1, 10, 100, … show even in a sum which ranks are in it. A cell may also be a set
of ranks that have contributed: it has a stripe in the colour of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from course_lib.draw import style
from course_lib.draw.style import FAINT, INK, PAPER, WAITING, Picture, course_style
from course_lib.trace import Run

Cells = list[list[Any]]  # of each rank, its cells
Corners = list[tuple[float, float]]
_NAMES = 0.65  # inches for the names of the ranks


@course_style
def values(*grids: Any, titles: Sequence[str] = (), caption: str = "") -> Picture:
    """Draw what each rank has: rows are ranks, columns their values or chunks.

    A grid is a list with one entry a rank (a tensor, a list, a number, None for nothing) or a
    Run, whose results are that list; results that are dicts make one grid of each key.

    >>> draw.values(before, after, titles=["before", "after all_reduce"])
    """
    lists = [list(grid.results) if isinstance(grid, Run) else list(grid) for grid in grids]
    names = [*titles, *[""] * (len(lists) - len(titles))]
    if len(lists) == 1 and lists[0] and all(isinstance(entry, dict) for entry in lists[0]):
        names = list(lists[0][0])
        lists = [[entry[name] for entry in lists[0]] for name in names]
    return _strip([_cells(grid) for grid in lists], names, caption)


@course_style
def film(grids: Sequence[Any], caption: str = "") -> Picture:
    """Draw grids that follow one another; what changed since the one before has a bold edge."""
    panels = [_cells(grid) for grid in grids]
    titles = ["start", *(f"step {k} of {len(panels) - 1}" for k in range(1, len(panels)))]
    return _strip(panels, titles, caption, is_film=True)


def _cells(grid: Sequence[Any]) -> Cells:
    """Each rank's entry, cell by cell; tensors and arrays by their first dimension."""
    plain = [entry.tolist() if hasattr(entry, "tolist") else entry for entry in grid]
    return [
        [] if entry is None else list(entry) if isinstance(entry, list | tuple) else [entry]
        for entry in plain
    ]


def _say(cell: Any) -> str:
    """A cell's text: numbers to four digits, sets of ranks in braces, lists in brackets."""
    cell = cell.tolist() if hasattr(cell, "tolist") else cell
    if isinstance(cell, set | frozenset):
        return "{" + number_ranges(sorted(cell)) + "}"
    if isinstance(cell, list | tuple):
        return _say(cell[0]) if len(cell) == 1 else "[" + " ".join(map(_say, cell)) + "]"
    return "–" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def number_ranges(ranks: list[int]) -> str:
    """Numbers in order, three or more in a row as a range: ``0-3,6``."""
    # Numbers of one run are all as far from their places in the list.
    pairs = groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])
    runs = [[rank for _, rank in run] for _, run in pairs]
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 2 else ",".join(map(str, r)) for r in runs)


def _colors(cell: Any, first: Cells) -> list[Any]:
    """A cell's colours from left to right: one, or of every rank known to be in it."""
    if isinstance(cell, set | frozenset):
        return [style.rank_color(rank, len(first)) for rank in sorted(cell)] or [PAPER]
    text = _say(cell)
    owners = [rank for rank, cells in enumerate(first) if text in map(_say, cells)]
    if len(owners) == 1:
        return [style.rank_color(owners[0], len(first))]
    return [PAPER if owners or cell is None else WAITING]


def _columns(panels: list[Cells]) -> int:
    return max([1, *(len(cells) for panel in panels for cells in panel)])


def _strip(panels: list[Cells], titles: list[str], caption: str, is_film: bool = False) -> Picture:
    """Panels in one picture, two in a row where they fit, and of a film three."""
    columns, ranks, most = _columns(panels), max([1, *map(len, panels)]), 3 if is_film else 2
    # A cell's width and height in inches; a film's panels are made to fit.
    cell = (min(0.5, (style.WIDTH / most - _NAMES) / columns), 0.27) if is_film else (0.75, 0.36)
    wide = min(style.WIDTH, cell[0] * columns + _NAMES)
    across = max(1, min(most, len(panels), int(style.WIDTH / wide + 0.01)))
    down = math.ceil(len(panels) / across)
    height = down * (min(cell[1], 8 / ranks) * ranks + 0.35) + 0.1 + 0.25 * bool(caption)
    picture = Picture(height, _words(panels, titles), wide * across)
    for k in range(len(panels)):
        axes = picture.add_subplot(down, across, k + 1)
        _draw_panel(axes, panels, k, titles[k], wide - _NAMES, is_film)
    picture.caption(caption)
    return picture


def _draw_panel(
    axes: Axes, panels: list[Cells], k: int, title: str, width: float, is_film: bool
) -> None:
    """Draw panel ``k``, ``width`` inches wide; a cell that a film has changed has a bold edge. All
    cells have text of one size, or none if it would be too small.
    """
    stripes: list[Corners] = []
    edges: dict[bool, list[Corners]] = {False: [], True: []}
    colors: list[Any] = []
    columns, before = _columns(panels), panels[k - 1 if is_film and k else k]
    longest = max([3, *(len(_say(cell)) for panel in panels for cells in panel for cell in cells)])
    fontsize = min(8.5, width / columns * 72 / (0.62 * longest), 400 / len(panels[k]))
    for rank, cells in enumerate(panels[k]):
        old = [_say(cell) for cell in before[rank]]
        for column, cell in enumerate(cells):
            fills = _colors(cell, panels[0])
            part = 1 / len(fills)
            stripes += [_box(column + i * part, rank, part) for i in range(len(fills))]
            colors += fills
            edges[old[column : column + 1] != [_say(cell)]].append(_box(column, rank, 1))
            if fontsize >= 4:
                axes.text(column + 0.5, rank, _say(cell), fontsize=fontsize, **style.CENTERED)
    axes.add_collection(PolyCollection(stripes, facecolor=colors, linewidth=0))
    for is_new, outlines in edges.items():
        color, thick = (INK, 2.0) if is_new else (FAINT, 0.6)
        outline = PolyCollection(outlines, fc="none", ec=color, linewidth=thick, clip_on=False)
        axes.add_collection(outline)
    style.rank_ticks(axes, len(panels[k]))
    axes.set(xlim=(-0.05, columns + 0.05), xticks=[])
    axes.set_title(title, loc="left")
    axes.spines[:].set_visible(False)


def _box(left: float, rank: int, width: float) -> Corners:
    right, top, bottom = left + width, rank - 0.47, rank + 0.47
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _words(panels: list[Cells], titles: list[str]) -> str:
    lines = []
    for title, panel in zip(titles, panels, strict=True):
        lines += [f"{title}:"] if title else []
        lines += [f"rank {r}: {'  '.join(map(_say, c)) or 'nothing'}" for r, c in enumerate(panel)]
    return "\n".join(lines)
