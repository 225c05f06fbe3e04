"""Who waits for whom: the graph behind a Deadlock or a Hang."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes

from course_lib.draw.style import ALARM, CENTERED, FAINT, INK, PAPER, WAITING, Picture, course_style
from course_lib.errors import Blocked, Deadlock

_NAMED = 12  # up to this many ranks, each one's call stands beside it
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 14}
_ARROW |= {"shrinkA": 13, "shrinkB": 13, "connectionstyle": "arc3,rad=0.18"}


@course_style
def waits(error: Blocked, caption: str = "") -> Picture:
    """Draw an arrow from each waiting rank to every rank that could free it.

    Ranks that do not wait themselves are white: they have left, or still compute. The cycle of a
    Deadlock is drawn bold and red.
    """
    calls = {wait.rank: wait.call for wait in error.waits}
    ranks = sorted({*calls, *(on for wait in error.waits for on in wait.on)})
    turn = 2 * math.pi / max(1, len(ranks))
    first = -math.pi / 2 if len(ranks) == 2 else 0.0  # two stand side by side, more in a circle
    places = {
        r: (math.sin(first + k * turn), math.cos(first + k * turn)) for k, r in enumerate(ranks)
    }
    cycle = error.cycle if isinstance(error, Deadlock) else ()
    edges = set(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    tall = 0.5 if len(ranks) <= 2 else 1.5
    picture = Picture(1.15 * 2 * tall, _text(error, ranks, cycle), 6.0)
    axes = picture.add_subplot(aspect="equal", xlim=(-2.6, 2.6), ylim=(-tall, tall))
    axes.set_axis_off()
    for start, end in ((wait.rank, on) for wait in error.waits for on in wait.on):
        color, thick = (ALARM, 2.2) if (start, end) in edges else (FAINT, 1.0)
        look = _ARROW | {"color": color, "linewidth": thick}
        axes.annotate("", xy=places[end], xytext=places[start], arrowprops=look)
    for rank, place in places.items():
        _draw_rank(axes, rank, place, calls.get(rank), rank in cycle, len(ranks) <= _NAMED)
    picture.caption(caption)
    return picture


def _draw_rank(
    axes: Axes, rank: int, place: tuple[float, float], call: str | None, bold: bool, named: bool
) -> None:
    x, y = place
    color, thick = (ALARM, 2) if bold else (INK, 1)
    fill = WAITING if call else PAPER
    axes.scatter(x, y, s=520, color=fill, zorder=3, edgecolor=color, linewidth=thick)
    axes.text(x, y, str(rank), zorder=4, fontsize=10, **CENTERED)
    if named:
        side = "left" if x > 0.1 else "right" if x < -0.1 else "center"
        text = (call or "does not wait").replace(" among", "\namong")
        axes.text(x * 1.27, y * 1.34, text, fontsize=8.5, ha=side, va="center")


def _text(error: Blocked, ranks: list[int], cycle: tuple[int, ...]) -> str:
    lines = []
    for wait in sorted(error.waits, key=lambda w: w.rank):
        on = ", ".join(map(str, wait.on)) or "nobody known"
        lines.append(f"rank {wait.rank} waits in {wait.call} for {on}")
    waiting = {wait.rank for wait in error.waits}
    lines += [f"rank {rank} does not wait" for rank in ranks if rank not in waiting]
    if cycle:
        lines.append("cycle: " + " → ".join(map(str, cycle + cycle[:1])))
    return "\n".join(lines)
