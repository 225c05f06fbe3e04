"""How many bytes of tensors were alive on a rank, operator by operator, with its spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from course_lib.draw.style import CENTERED, COLLECTIVE, WAITING, Picture, course_style, size, table
from course_lib.trace import Curve, Run

_LETTERS = 110  # how many fit into the picture's width
_NOTHING = "no memory was counted: see count_memory"


@course_style
def memory(
    *runs: Run,
    titles: Sequence[str] = (),
    rank: int | None = None,
    unit: tuple[str, float] | None = None,
    caption: str = "",
) -> Picture:
    """Draw what ``count_memory`` counted: bytes alive from left to right, a step at each operator
    that made or freed a tensor; runs one below another, on one scale. Spans are shaded.

    Of each run that rank is drawn whose peak is highest, or ``rank``. The horizontal axis has no
    seconds, as an operator takes no time in a simulation: it counts operators. ``unit`` is one of
    your own with its bytes, as ``("P", 524288)``.

    >>> draw.memory(ddp, sharded, titles=["DDP", "fully_shard"])
    """
    shown = (lambda nbytes: f"{nbytes / unit[1]:.3g} {unit[0]}") if unit else size
    if not runs:
        raise ValueError("memory() without a run: give what run() or simulate() returned")
    names = [*titles, *[""] * (len(runs) - len(titles))]
    curves = [_choose_curve(run, rank) for run in runs]
    panels = [*zip(names, curves, strict=True)]
    texts = [f"{name}:\n{_text(curve, shown)}".removeprefix(":\n") for name, curve in panels]
    picture = Picture(1.9 * len(runs) + 0.5, "\n".join(texts))
    most = max((nbytes for curve in curves for _, nbytes, _ in curve), default=1)
    for place, (name, curve) in enumerate(panels):
        axes = picture.add_subplot(len(runs), 1, place + 1, title=name, ylim=(0, 1.4 * most))
        _draw_curve(axes, curve, shown)
        if unit:  # a tick at each whole number of them, or at every second one
            step = unit[1] * max(1, round(most / unit[1] / 4))
            axes.yaxis.set_major_locator(MultipleLocator(step))
    picture.axes[-1].set_xlabel("operators that made or freed a tensor")
    picture.caption(caption)
    return picture


def _choose_curve(run: Run, rank: int | None) -> Curve:
    """The curve of a rank, or of the first of those whose peak is highest."""
    curves = run.trace.memory
    chosen = curves.values() if rank is None else [curves.get(rank, [])]
    return max(chosen, key=_peak, default=[])


def _peak(curve: Curve) -> int:
    return max((nbytes for _, nbytes, _ in curve), default=0)


def _stretches(curve: Curve) -> Iterator[tuple[str, int, Curve]]:
    """The parts of a curve, each in one span or in none: name, number of the first step, steps."""
    first = 0
    for name, steps in groupby(curve, key=lambda step: step[2]):
        part = list(steps)
        yield name, first, part
        first += len(part)


def _text(curve: Curve, shown: Callable[[float], str]) -> str:
    if not curve:
        return _NOTHING
    parts = _stretches(curve)
    rows = [[name or "outside", shown(_peak(p)), shown(p[-1][1])] for name, _, p in parts]
    return table(["span", "peak", "at its end"], rows)


def _draw_curve(axes: Axes, curve: Curve, shown: Callable[[float], str]) -> None:
    """The staircase, with a band for every second span, and the peak's number."""
    if not curve:
        axes.text(0.5, 0.5, _NOTHING, transform=axes.transAxes, **CENTERED)
        return
    heights = [nbytes for _, nbytes, _ in curve]
    edges = range(len(heights) + 1)
    axes.stairs(heights, edges, fill=True, color=COLLECTIVE, alpha=0.35)
    axes.stairs(heights, edges, color=COLLECTIVE, linewidth=1.2)
    _draw_spans(axes, curve)
    peak = heights.index(max(heights))
    axes.text(peak + 0.5, heights[peak], shown(heights[peak]), ha="center", va="bottom")
    axes.yaxis.set_major_formatter(lambda nbytes, _: shown(nbytes))
    axes.set(xlim=(0, len(heights)), ylabel="alive")


def _draw_spans(axes: Axes, curve: Curve) -> None:
    shaded = False
    for name, first, part in _stretches(curve):
        if not name:
            continue
        end = first + len(part)
        if shaded := not shaded:
            axes.axvspan(first, end, color=WAITING, zorder=0, linewidth=0)
        if len(part) * _LETTERS > len(name) * len(curve):
            across = axes.get_xaxis_transform()
            axes.text((first + end) / 2, 0.97, name, transform=across, ha="center", va="top")
