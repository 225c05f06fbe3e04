"""How large a number is, row by row and column by column, from far below one to far above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy
from matplotlib.colors import LogNorm

from course_lib.draw.style import PAPER, Picture, drawn


@drawn
def heat(
    rows: Mapping[str, Sequence[float]],
    xlabel: str,
    label: str,
    caption: str = "",
    exact: bool = False,
) -> Picture:
    """Draw each row, ``name: numbers``, as a strip of colour on a logarithmic scale; 0 is white.

    ``label`` says what the numbers are. Like those of ``lines`` they are in ``.words``, and in
    what a notebook stores only if they are ``exact``.

    >>> draw.heat({"weight": [0, 1e-7], "bias": [0, 1e-8]}, "step", "difference to the twin")
    """
    numbers = numpy.array([list(row) for row in rows.values()], dtype=float)
    words = "\n".join(f"{name}: {', '.join(f'{x:.2g}' for x in row)}" for name, row in rows.items())
    plain = f"heat, {label} against {xlabel}: {', '.join(rows)}"
    picture = Picture(0.3 * len(rows) + 1.0, words, plain=None if exact else plain)
    axes = picture.add_subplot(xlabel=xlabel, facecolor=PAPER)
    there = numbers[numbers > 0]
    norm = LogNorm(there.min(), max(there.max(), 1.01 * there.min())) if there.size else None
    image = axes.imshow(numpy.ma.masked_less_equal(numbers, 0), cmap="cividis", norm=norm,
                        aspect="auto", interpolation="nearest")  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_yticks(numpy.arange(1, len(rows)) - 0.5, minor=True)
    axes.grid(which="minor", axis="y", color=PAPER, linewidth=2)
    axes.tick_params(axis="y", which="both", length=0)
    axes.spines[:].set_visible(False)
    bar = picture.colorbar(image, ax=axes, pad=0.01)
    bar.set_label(label)
    picture.caption(caption)
    return picture
