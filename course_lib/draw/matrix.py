"""Who sent how much to whom: bytes of point-to-point messages, rank by rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy
from matplotlib.axes import Axes

from course_lib.draw import style
from course_lib.draw.style import INK, PAPER, Picture, course_style, size
from course_lib.trace import Event, Run

_ANNOTATED = 16  # up to this many ranks each cell shows its number


@course_style
def traffic(*runs: Run, titles: Sequence[str] = (), caption: str = "") -> Picture:
    """Draw the bytes that each rank (row) sent to each other one (column); runs side by side.

    Only ``send`` shows in the matrix. What a backend sends inside a collective is not seen from
    outside, so collectives are listed below, with their calls and the bytes of their tensors.

    >>> draw.traffic(star, tree, titles=["a star", "a tree"])
    """
    names = [*titles, *[""] * (len(runs) - len(titles))]
    matrices = [_count_sent(run) for run in runs]
    notes = [_count_collectives(run) + ([run.trace.note] if run.trace.note else []) for run in runs]
    below = [line for lines in notes for line in lines]
    words = "\n".join(
        f"{name}:\n{text}" if name else text
        for name, text in zip(names, map(_text, matrices, notes), strict=True)
    )
    largest = max(run.world_size for run in runs)
    side = min(6.0, max(2.2, 0.62 * largest)) if len(runs) == 1 else min(4.2, 0.5 * largest + 0.1)
    wide = side + (2.2 if len(runs) == 1 else 0.75)
    across = max(1, min(len(runs), int(style.WIDTH / wide)))
    down = -(-len(runs) // across)
    tall = side + (0.65 if any(names) else 0.5)
    picture = Picture(down * tall + 0.4 + 0.18 * len(below), words, across * wide)
    picture.get_layout_engine().set(hspace=0.08)  # type: ignore[call-arg, union-attr]
    most = max(1, *(int(sent.max()) for sent in matrices))
    for place, (sent, name) in enumerate(zip(matrices, names, strict=True)):
        _draw_matrix(picture.add_subplot(down, across, place + 1, title=name), sent, most)
    picture.caption(caption, *below)
    return picture


def _count_sent(run: Run) -> numpy.ndarray:
    """Bytes by source and destination."""
    sent = numpy.zeros((run.world_size, run.world_size), dtype=numpy.int64)
    for message in run.trace.messages:
        sent[message.src, message.dst] += message.nbytes
    return sent


def _draw_matrix(axes: Axes, sent: numpy.ndarray, most: int) -> None:
    """Draw one matrix, in shades that reach up to ``most`` bytes."""
    world_size = len(sent)
    image = axes.imshow(sent, cmap="Blues", vmin=0, vmax=most * 2.2)  # dark text stays legible
    style.rank_ticks(axes, world_size)
    ticks = range(0, world_size, -(-world_size // 16))
    axes.set_xticks(ticks, [str(rank) for rank in ticks])
    axes.set(xlabel="to rank", ylabel="from")
    axes.spines[:].set_visible(False)
    if world_size > _ANNOTATED:
        bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, boundaries=None)
        bar.ax.set_ylim(0, most)
        bar.ax.yaxis.set_major_formatter(lambda value, _: size(value))
        return
    axes.set_xticks(numpy.arange(world_size + 1) - 0.5, minor=True)
    axes.set_yticks(numpy.arange(world_size + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=PAPER, linewidth=2)
    axes.tick_params(which="minor", length=0)
    fontsize = 9 - max(0, world_size - 8) * 0.4
    for (src, dst), nbytes in numpy.ndenumerate(sent):
        text = size(nbytes) if nbytes else "·"
        axes.text(dst, src, text, fontsize=fontsize, color=INK, **style.CENTERED)


def _count_collectives(run: Run) -> list[str]:
    calls: dict[str, list[Event]] = defaultdict(list)
    smaller = style.subgroups(run.trace)
    for event in run.trace.by_rank:
        if event.is_collective:
            among = f" among {smaller[event.group][1]}" if event.group in smaller else ""
            calls[event.op + among].append(event)
    return [
        f"{op}: {len(events)} calls on {len({e.rank for e in events})} ranks, "
        f"tensors of {sum(e.nbytes for e in events):,} bytes in all"
        for op, events in sorted(calls.items())
    ]


def _text(sent: numpy.ndarray, notes: list[str]) -> str:
    """Every pair that talked, then the rest; a matrix of 64 ranks would fill the page."""
    talked = [(src, dst, sent[src, dst]) for src, dst in zip(*sent.nonzero(), strict=True)]
    pairs = [f"rank {src} to rank {dst}: {nbytes:,} bytes" for src, dst, nbytes in talked]
    return "\n".join((pairs or ["no point-to-point messages"]) + notes)
