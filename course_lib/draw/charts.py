"""Measured series: bars to compare a few numbers, lines to see how one depends on another.

Measured numbers differ from run to run, so a notebook stores only what the chart shows, and the
numbers are in ``.words``. ``exact=True`` is for numbers that come out the same every time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes

from course_lib.draw.style import COLLECTIVE, Picture, drawn

LINES = (COLLECTIVE, "#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^v*"
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@drawn
def bars(
    numbers: Mapping[str, float], unit: str, caption: str = "", exact: bool = False
) -> Picture:
    """Draw one horizontal bar a name, in the order given.

    >>> draw.bars({"spawn": 4.1, "forkserver": 0.1}, unit="s", caption="Start-up of 4 ranks")
    """
    words = "\n".join(f"{name}: {number:.4g} {unit}" for name, number in numbers.items())
    plain = f"bars, {unit}: {', '.join(numbers)}"
    picture = Picture(0.34 * len(numbers) + 0.7, words, plain=None if exact else plain)
    axes = picture.add_subplot()
    container = axes.barh(list(numbers), list(numbers.values()), color=COLLECTIVE, height=0.62)
    axes.bar_label(container, [f"{number:.3g} {unit}" for number in numbers.values()], padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(unit)
    picture.caption(caption)
    return picture


@drawn
def lines(
    series: Series,
    xlabel: str,
    ylabel: str,
    loglog: bool = False,
    formulas: Collection[str] = (),
    caption: str = "",
    exact: bool = False,
    logx: bool = False,
) -> Picture:
    """Draw each series, ``name: (xs, ys)``; those named in ``formulas`` as dashes, not points.

    ``loglog`` makes both axes logarithmic, ``logx`` the horizontal one alone.

    >>> draw.lines({"measured": (sizes, seconds), "α + βS": (sizes, model)}, "bytes", "s",
    ...            loglog=True, formulas=["α + βS"])
    """
    words = "\n".join(
        f"{name}: " + ", ".join(f"({x:.4g}, {y:.4g})" for x, y in zip(xs, ys, strict=True))
        for name, (xs, ys) in series.items()
    )
    plain = f"lines, {ylabel} against {xlabel}: {', '.join(series)}"
    picture = Picture(3.4, words, width=7.0, plain=None if exact else plain)
    axes = picture.add_subplot(xlabel=xlabel, ylabel=ylabel)
    for k, (name, (xs, ys)) in enumerate(series.items()):
        look = "--" if name in formulas else f"{_MARKERS[k % len(_MARKERS)]}-"
        axes.plot(xs, ys, look, color=LINES[k % len(LINES)], label=name, markersize=4)
    axes.set(xscale="log" if loglog or logx else "linear", yscale="log" if loglog else "linear")
    name_counts(axes, {float(x) for xs, _ in series.values() for x in xs})
    axes.grid(True, color="#E6E6E6", linewidth=0.6)
    axes.legend(frameon=False)
    picture.caption(caption)
    return picture


def name_counts(axes: Axes, xs: set[float]) -> None:
    """A few small whole numbers, of ranks for one, are the only ticks: there is no rank 2.5."""
    if len(xs) <= 12 and all(x.is_integer() and abs(x) < 10_000 for x in xs):
        axes.set_xticks(sorted(xs), [f"{x:g}" for x in sorted(xs)])
        axes.tick_params(axis="x", which="minor", length=0, labelbottom=False)
