"""What all pictures share: the palette, the Picture itself, units and tables.

The same colour means the same thing in every lesson, and no meaning hangs on colour alone:
waiting is hatched, boxes carry their names, and every picture has a text twin. Operations take
their colours from Okabe and Ito, "Color Universal Design" (2008), ranks from Paul Tol's "light"
scheme, on which black text stays legible, and groups from his "muted" one (SRON/EPS/TN/09-002,
2021).
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from course_lib.trace import Event, Trace

SEND, RECV, COLLECTIVE = "#E69F00", "#56B4E9", "#009E73"
WAITING, COMPUTE, ALARM = "#E6E6E6", "#F0E442", "#D55E00"
INK, FAINT, PAPER = "#222222", "#8A8A8A", "#FFFFFF"
RANKS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
GROUPS = ("#332288", "#CC6677", "#117733", "#88CCEE", "#882255", "#999933", "#DDCC77", "#AA4499")
KINDS = {"send": SEND, "recv": RECV, "collective": COLLECTIVE}
WIDTH = 9.0  # inches: the width of a notebook's output area at 100 pixels an inch
_SHARPNESS = 1.5  # PNG pixels for one pixel on the page, so that text stays crisp when zoomed
_LINES_SHOWN = 40

# What differs from matplotlib's own defaults.
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 9.5,
    "axes.titlecolor": INK,
    "xtick.labelsize": 8,
    "xtick.color": INK,
    "ytick.labelsize": 8.5,
    "ytick.color": INK,
    "legend.fontsize": 8,
    "hatch.color": FAINT,
    "hatch.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Decorates whatever draws. It begins with matplotlib's defaults, because a reader's own style (a
# dark one, say) must not leak in.
course_style = matplotlib.style.context(["default", _STYLE])
CENTERED: dict[str, Any] = {"ha": "center", "va": "center"}  # where a text stands at its place


class Picture(Figure):
    """A matplotlib Figure that a cell shows once, without pyplot.

    ``words`` says the same as text, for readers who cannot see the picture. Its first lines are
    the picture's repr, so a notebook stores them beside the image; ``plain`` replaces them where
    ``words`` holds measured numbers, which no two runs share.
    """

    def __init__(self, height: float, words: str, width: float = WIDTH, plain: str | None = None):
        super().__init__(figsize=(width, height), dpi=100, facecolor=PAPER, layout="constrained")
        self.words, self.plain = words, plain
        self.player = ""  # HTML that a page shows instead, with the picture in it
        self._png: tuple[bytes, dict[str, int]] | None = None

    def __repr__(self) -> str:
        lines = (self.words if self.plain is None else self.plain).splitlines()
        more = len(lines) - _LINES_SHOWN
        cut = [*lines[:_LINES_SHOWN], f"… {more} more lines in .words"] if more > 0 else lines
        return "\n".join(cut)

    __str__ = __repr__

    def caption(self, *parts: str) -> None:
        """Write the parts that are not empty under the picture, wrapped to its width."""
        columns = int(self.get_figwidth() * 15)
        lines = [textwrap.fill(line, columns) for part in parts for line in part.splitlines()]
        if lines:
            self.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=9)

    def png(self) -> tuple[bytes, dict[str, int]]:
        """The picture on white, in few bytes, and how wide it is on a page."""
        if self._png is None:
            drawn, packed = io.BytesIO(), io.BytesIO()
            self.savefig(drawn, format="png", dpi=100 * _SHARPNESS, facecolor=PAPER)
            image = Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE)
            image.save(packed, format="png", optimize=True)
            self._png = packed.getvalue(), {"width": int(image.width / _SHARPNESS)}
        return self._png

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        return None if self.player else self.png()

    def _repr_html_(self) -> str | None:
        return self.player or None


def kind(event: Event) -> str:
    """The name in KINDS of what an Event is."""
    return "send" if event.is_send else "recv" if event.is_recv else "collective"


def rank_color(rank: int, world_size: int) -> tuple[float, float, float]:
    """A rank's colour: one of RANKS, or a step of a scale where there are more than these."""
    if world_size <= len(RANKS):
        return to_rgb(RANKS[rank])
    return to_rgb(matplotlib.colormaps["cividis"](0.3 + 0.7 * rank / (world_size - 1)))


def subgroups(trace: Trace) -> dict[str, tuple[str, str]]:
    """By name each group that is smaller than the world: its colour, and its ranks in words."""
    world = max(map(len, trace.groups.values()), default=0)
    smaller = sorted((ranks, name) for name, ranks in trace.groups.items() if len(ranks) < world)
    return {
        name: (GROUPS[k % len(GROUPS)], "ranks " + " ".join(map(str, ranks)))
        for k, (ranks, name) in enumerate(smaller)
    }


def size(nbytes: float) -> str:
    """Bytes for people, in powers of 1000 as networks count: ``4.1 kB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.4g} TB"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit for times of this length: how many of it make a second, and its name."""
    return (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, numbers to the right, words to the left."""
    columns = [_align(column) for column in zip(header, *rows, strict=True)]
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def _align(column: Sequence[str]) -> list[str]:
    """A heading and its cells, all as long as the longest."""
    width, is_number = max(map(len, column)), all(c[:1].isdigit() or not c for c in column[1:])
    return [cell.rjust(width) if is_number else cell.ljust(width) for cell in column]


def rank_ticks(axes: Axes, world_size: int) -> None:
    """Name the lanes of the y axis, rank 0 at the top, as many names as there is room for."""
    step = -(-world_size // 32)
    ranks = range(0, world_size, step)
    axes.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(world_size - 0.5, -0.5)
