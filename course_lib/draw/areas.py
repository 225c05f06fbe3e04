"""A map: which of a few names holds where, over two numbers that grow by factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from course_lib.draw.charts import name_counts
from course_lib.draw.style import INK, RANKS, Picture, drawn

Points = Mapping[str, Sequence[tuple[float, float]]]
_MARKERS = "osD^v*"


@drawn
def areas(
    xs: Sequence[float],
    rows: Mapping[float, Sequence[str]],
    points: Points,
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
    words = [f"{name}: points at " + ", ".join(f"({x:.4g}, {y:.4g})" for x, y in points[name])
             for name in points]  # fmt: skip
    picture = Picture(4.2, "\n".join([f"areas: {', '.join(names)}", *words]), width=7.4)
    axes = picture.add_subplot(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
    numbers = numpy.array([[names.index(name) for name in row] for row in rows.values()])
    colors = ListedColormap(RANKS[: len(names)])
    axes.pcolormesh(xs, list(rows), numbers, cmap=colors, vmin=-0.5, vmax=len(names) - 0.5,
                    shading="nearest", rasterized=True)  # fmt: skip
    for marker, (name, places) in zip(_MARKERS, points.items(), strict=False):
        axes.plot(*zip(*places, strict=True), marker, ls="", ms=7, mec=INK, clip_on=False,
                  color=RANKS[names.index(name)])  # fmt: skip
    counts = {x for places in points.values() for x, _ in places} | {max(xs)}
    name_counts(axes, set(map(float, counts)))
    axes.set(xlim=(min(xs), max(xs)), ylim=(min(rows), max(rows)))
    patches = [Patch(facecolor=RANKS[k], edgecolor=INK, label=n) for k, n in enumerate(names)]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    picture.caption(caption)
    return picture
