"""Measured series: bars to compare a few numbers, lines to see how one depends on another, areas
to see what holds where.

Measured numbers differ from run to run, so a notebook stores only what the chart shows, and the
numbers are in ``.words``. ``exact=True`` is for numbers that come out the same every time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatterMathtext

from course_lib.draw.style import COLLECTIVE, INK, RANKS, Picture, course_style

LINES = (COLLECTIVE, "#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^v*"
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@course_style
def bars(
    numbers: Mapping[str, float], unit: str, caption: str = "", exact: bool = False
) -> Picture:
    """Draw one horizontal bar a name, in the order given.

    >>> draw.bars({"spawn": 4.1, "forkserver": 0.1}, unit="s", caption="Start-up of 4 ranks")
    """
    rows = [f"{name}: {_number_text(number, 4)} {unit}" for name, number in numbers.items()]
    plain = f"bars, {unit}: {', '.join(numbers)}"
    height = 0.34 * len(numbers) + 0.7
    picture = Picture(height, "\n".join(rows), plain=None if exact else plain)
    axes = picture.add_subplot()
    container = axes.barh(list(numbers), list(numbers.values()), color=COLLECTIVE, height=0.62)
    labels = [f"{_number_text(number, 3)} {unit}" for number in numbers.values()]
    axes.bar_label(container, labels, padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(unit)
    picture.caption(caption)
    return picture


@course_style
def lines(
    series: Series,
    xlabel: str,
    ylabel: str,
    loglog: bool = False,
    formulas: Collection[str] = (),
    caption: str = "",
    exact: bool = False,
    logx: bool = False,
    logy: bool = False,
    ymin: float | None = None,
) -> Picture:
    """Draw each series, ``name: (xs, ys)``; those named in ``formulas`` as dashes, not points.

    ``loglog`` makes both axes logarithmic, ``logx`` or ``logy`` one of them. ``ymin`` is where the
    vertical axis begins: 0 for shares, which a cut axis would exaggerate.

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
    axes.set_xscale("log" if loglog or logx else "linear")
    axes.set_yscale("log" if loglog or logy else "linear")
    _write_numbers_out(axes)
    if ymin is not None:
        axes.set_ylim(bottom=ymin)
    _name_counts(axes, {float(x) for xs, _ in series.values() for x in xs})
    axes.grid(True, color="#E6E6E6", linewidth=0.6)
    axes.legend(frameon=False)
    picture.caption(caption)
    return picture


@course_style
def areas(
    xs: Sequence[float],
    rows: Mapping[float, Sequence[str]],
    points: Mapping[str, Sequence[tuple[float, float]]],
    xlabel: str,
    ylabel: str,
    caption: str = "",
) -> Picture:
    """Draw a map: ``rows`` is ``y: the name at each of xs``, an area of colour for each name.

    ``points`` are by name what was found at places ``(x, y)``, in the colour of that name: a point
    that is of another colour than its area contradicts the map. Both axes are logarithmic.

    >>> draw.areas([2, 4], {8: ["doubling", "star"], 1e6: ["ring", "ring"]}, {"ring": [(4, 1e6)]},
    ...            "ranks", "bytes")
    """
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    names += [name for name in points if name not in names]
    words = [
        f"{name}: points at " + ", ".join(f"({x:.4g}, {y:.4g})" for x, y in points[name])
        for name in points
    ]
    picture = Picture(4.2, "\n".join([f"areas: {', '.join(names)}", *words]), width=7.4)
    axes = picture.add_subplot(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
    _write_numbers_out(axes)
    numbers = numpy.array([[names.index(name) for name in row] for row in rows.values()])
    mesh = axes.pcolormesh(xs, list(rows), numbers, shading="nearest", rasterized=True)
    mesh.set(cmap=ListedColormap(RANKS[: len(names)]), clim=(-0.5, len(names) - 0.5))
    for marker, (name, places) in zip(_MARKERS, points.items(), strict=False):
        look: dict[str, Any] = {"color": RANKS[names.index(name)], "mec": INK, "clip_on": False}
        axes.plot(*zip(*places, strict=True), marker, ls="", ms=7, **look)
    counts = {x for places in points.values() for x, _ in places} | {max(xs)}
    _name_counts(axes, set(map(float, counts)))
    axes.set(xlim=(min(xs), max(xs)), ylim=(min(rows), max(rows)))
    patches = [Patch(facecolor=RANKS[k], edgecolor=INK, label=n) for k, n in enumerate(names)]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    picture.caption(caption)
    return picture


class _PlainLog(LogFormatterMathtext):
    """On a logarithmic axis 0.4, 3 and 40; powers of ten where a number has more digits than a
    reader counts."""

    def __call__(self, x: float, pos: Any = None) -> str:
        power = super().__call__(x, pos)
        return f"{x:,.6g}" if power and 1e-3 <= x < 1e6 else power


def _write_numbers_out(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(_PlainLog())
            axis.set_minor_formatter(_PlainLog(minor_thresholds=(1, 0.4)))


def _number_text(number: float, digits: int) -> str:
    """A number in so many digits; a large one whole, where these would need a power of ten."""
    short = f"{number:.{digits}g}"
    return f"{number:,.0f}" if "e+" in short else short


def _name_counts(axes: Axes, xs: set[float]) -> None:
    """A few small whole numbers, of ranks for one, are the only ticks: there is no rank 2.5."""
    if len(xs) <= 12 and all(x.is_integer() and abs(x) < 10_000 for x in xs):
        axes.set_xticks(sorted(xs), [f"{x:g}" for x in sorted(xs)])
        axes.tick_params(axis="x", which="minor", length=0, labelbottom=False)
