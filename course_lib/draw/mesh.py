"""Ranks in rows and columns, and the groups in which they talk.

0 ─── 1 ─── 2       a line through the ranks of each group that was used, in its colour;
│     │     │       lines of rows lie above the middle of a rank, those of columns beside it
3 ─── 4 ─── 5
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from course_lib.draw import style
from course_lib.draw.style import ALARM, INK, WAITING, Picture, course_style
from course_lib.trace import Run

_CELL = 0.95  # inches
_LINE: dict[str, Any] = {"linewidth": 3, "marker": "o", "markersize": 5, "zorder": 4}


@course_style
def mesh(
    run: Run, shape: tuple[int, int], marked: Sequence[int] = (), caption: str = ""
) -> Picture:
    """Draw the ranks as a grid of ``shape`` (rows, columns), filled row by row, with their groups.

    Each group of some of the ranks that was used is a line through its members; what was called
    in it stands beside the grid. Where some ranks are ``marked``, they are red, the others grey.

    >>> draw.mesh(run, (2, 3), caption="Each rank talks in its row and in its column.")
    """
    rows, columns = shape
    smaller, called = style.subgroups(run.trace), _count_calls(run)
    names = {n: f"{ranks}: {called[n]}" for n, (_, ranks) in smaller.items() if n in called}
    words = "\n".join([f"{rows} rows of {columns} ranks", *names.values()])
    words += f"\nmarked: {', '.join(map(str, marked))}" if marked else ""
    tall = max(_CELL * rows, 0.2 * len(names)) + 0.2
    picture = Picture(tall + 0.25 * bool(caption), words, max(5.0, _CELL * columns + 2.6))
    axes = picture.add_subplot(aspect="equal", xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.set_axis_off()
    for name, label in names.items():
        places = [divmod(rank, columns) for rank in run.trace.groups[name]]
        is_column = len({column for _, column in places}) == 1 < len(places)
        right, down = (0.13, 0.0) if is_column else (0.0, -0.13)
        xs, ys = [c + right for _, c in places], [r + down for r, _ in places]
        axes.plot(xs, ys, color=smaller[name][0], label=label, **_LINE)
    for rank in range(run.world_size):
        row, column = divmod(rank, columns)
        color: Any = ALARM if rank in marked else WAITING
        if not marked:
            color = style.rank_color(rank, run.world_size)
        axes.scatter(column, row, s=900, color=color, edgecolor=INK, linewidth=1, zorder=3)
        axes.text(column - 0.08, row + 0.1, str(rank), zorder=5, fontsize=10, **style.CENTERED)
    if names:
        picture.legend(loc="outside right center", frameon=False)
    picture.caption(caption)
    return picture


def _count_calls(run: Run) -> dict[str, str]:
    """By group, what was called in it: ``all_reduce``, or ``broadcast, all_reduce × 2``."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for event in run.trace.by_rank:
        if event.rank == min(run.trace.groups.get(event.group, (event.rank,))):
            counts[event.group][event.op] += 1
    return {
        group: ", ".join(f"{op} × {k}" if k > 1 else op for op, k in ops.items())
        for group, ops in counts.items()
    }
