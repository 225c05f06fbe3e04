"""The space-time diagram of a run: one lane a rank, time from left to right.

            issued      the other side is there       completed
               │ waiting (hatched) │     the call's colour │
    rank 0     └───────────────────┴──────────┬────────────┘
                                              ╲  a message, from when both are there to its end
    rank 1                             ┌───────╲───────────┐

On a modelled GPU the host's calls are marks above a lane, each tied to the box of what its stream
began later. The stream that computes is a band of its own between the two, so that an overlap is
seen as one: calls that run beside it have their boxes below, one that runs in it, as a call with
async_op=False does, has its box in the band.

Times are those of the trace. Where nothing ever told that a call was done, its box stays open.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from string import digits
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch

from course_lib.draw import style
from course_lib.draw.lanes import COMPUTING, Box, boxes, collectives
from course_lib.draw.style import FAINT, INK, WAITING, Picture
from course_lib.trace import Event, Message, Run, Trace

_ARROWHEADS, _ARROWS = 200, 2000  # with more messages: lines without heads; none at all
_HATCH = "/////"
_CALLS: dict[str, Any] = {"color": INK, "linestyle": "none", "marker": "v", "markersize": 3.5}
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.9, "mutation_scale": 9}
_NAME: dict[str, Any] = {"fontsize": 7, "va": "center_baseline", "zorder": 5, "clip_on": True}
_BEHIND_NAME: dict[str, Any] = {"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0.6}


@dataclass(frozen=True)
class _Sheet:
    """What is drawn on, and how seconds and lanes become inches."""

    axes: Axes
    trace: Trace
    places: dict[int, Box]
    groups: dict[str, tuple[str, str]]  # those of some ranks
    start: float  # seconds, as all times here; the axis alone names them in its unit
    end: float
    lane: float  # inches
    gpus: bool  # whether hosts and streams have times of their own

    def inches(self, seconds: float) -> float:
        return seconds / (self.end - self.start) * (style.WIDTH - 0.9)

    def seconds(self, inches: float) -> float:
        return inches / (style.WIDTH - 0.9) * (self.end - self.start)


@style.course_style
def timeline(run: Run, caption: str = "", between: tuple[float, float] | None = None) -> Picture:
    """Draw who did what when: calls as boxes, messages as arrows, spans as bands behind.
    Numbered spans of several kinds, as F0 and B0, have a shade for each kind.

    The hatched part of a box is waiting: the other side had not called yet. A span that is named
    "waiting" is hatched as well. The boxes of one collective are tied by a line at the moment when
    the last of its ranks came, or at their ends where they left before; those in a group of some
    ranks have a dot of its colour there, and its ranks in their names. A box that stays open on its
    right is a call whose end nobody recorded. ``between``, in seconds, shows a part of a long run.
    """
    start, end = between or extent(run.trace)
    margin = 0.02 * (end - start) or 1e-6
    gpus = any(e.called is not None for e in run.trace.events)
    # A run at its true size has kernels, by rank, of the played ranks alone.
    lanes = max(getattr(run, "kernels", range(run.world_size))) + 1
    lane = min(0.9 if gpus else 0.62, max(0.14, 6 / lanes))
    picture = Picture(1.1 + lane * lanes, _words(run))
    axes, (scale, unit) = picture.add_subplot(), style.time_unit(end - start)
    places, groups = boxes(run.trace), style.subgroups(run.trace)
    shown = start - margin, end + 2 * margin
    sheet = _Sheet(axes, run.trace, places, groups, *shown, lane, gpus)
    style.rank_ticks(axes, lanes)
    axes.set(xlim=(sheet.start, sheet.end), xlabel=f"time, {unit}")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds * scale:.6g}")
    _draw_spans(sheet)
    if gpus:
        _draw_calls(sheet)
    _draw_boxes(sheet)
    dropped = _draw_messages(sheet)
    _draw_ties(sheet)
    _draw_names(sheet)
    _draw_legend(picture, sheet)
    picture.caption(caption, dropped, run.trace.note or "")
    return picture


def extent(trace: Trace) -> tuple[float, float]:
    """First and last moment that anything is known of, in seconds."""
    starts = [e.issued if e.called is None else e.called for e in trace.events]
    starts += [s.start for s in trace.spans]
    ends = [e.completed or e.issued for e in trace.events] + [s.end for s in trace.spans]
    return min(starts, default=0.0), max(ends, default=1.0)


def _draw_spans(sheet: _Sheet) -> None:
    spans = sheet.trace.spans
    named = {(s.rank, s.start, s.end) for s in spans if s.name != "compute"}
    kinds = list(dict.fromkeys(s.name.rstrip(digits) for s in spans if s.name[-1:].isdigit()))
    for span in spans:
        if span.name == "compute" and (span.rank, span.start, span.end) in named:
            continue  # a span around it says what is computed
        width, waits = span.end - span.start, span.name == "waiting"
        on_stream = sheet.gpus and span.name == "compute"
        top, bottom, alpha = (*COMPUTING, 0.9) if on_stream else (-0.45, 0.45, 0.3)
        if not on_stream and (numbered := span.name.rstrip(digits)) in kinds:
            alpha += min(0.6, 0.3 * kinds.index(numbered))
        lane = span.rank + top, bottom - top
        color, hatch = (WAITING, _HATCH) if waits else (style.COMPUTE, None)
        band = sheet.axes.broken_barh([(span.start, width)], lane, facecolor=color, alpha=alpha)
        band.set(edgecolor=FAINT, linewidth=0.5, hatch=hatch)
        left = max(span.start, sheet.start)
        room = sheet.inches(min(span.end, sheet.end) - left)  # of what the picture shows of it
        if room > 0.053 * len(span.name) + 0.05 and sheet.lane > 0.4:
            x = left + sheet.seconds(0.03)
            y = span.rank + (0.36 if sheet.gpus and not on_stream else top + 0.02)
            sheet.axes.text(x, y, span.name, fontsize=6.5, va="top", clip_on=True)


def _draw_calls(sheet: _Sheet) -> None:
    """Mark where a host called, with a line from there to where its stream began the call."""
    calls = [box for box in sheet.places.values() if box.event.called is not None]
    marks = [(box.event.called or 0.0, box.event.rank - 0.46) for box in calls]
    ties = [[mark, (box.left, box.top)] for mark, box in zip(marks, calls, strict=True)]
    sheet.axes.add_collection(LineCollection(ties, color=FAINT, linewidth=0.6, zorder=1.5))
    sheet.axes.plot(*zip(*marks, strict=True), zorder=4, **_CALLS)


def _draw_boxes(sheet: _Sheet) -> None:
    """All boxes of a colour at once: a thousand separate ones would take seconds."""
    shapes: dict[str, list] = defaultdict(list)
    for box in sheet.places.values():
        if box.right is None:
            shapes["open"].append(_corners(box, box.left + sheet.seconds(0.18), box.left))
            continue
        shapes[style.kind(box.event)].append(_corners(box, box.waited_until, box.right))
        if box.waited_until > box.left:
            shapes["waiting"].append(_corners(box, box.left, box.waited_until))
    thick = 0.6 if len(sheet.places) < 300 else 0.1
    line: dict[str, Any] = {"edgecolor": INK, "linewidth": thick, "zorder": 2}
    for name, color in style.KINDS.items():
        sheet.axes.add_collection(PolyCollection(shapes[name], facecolor=color, **line))
    waits = PolyCollection(shapes["waiting"], facecolor=WAITING, hatch=_HATCH, **line)
    stubs = LineCollection(shapes["open"], color=INK, linewidth=1, linestyle=(0, (3, 1)))
    sheet.axes.add_collection(waits)
    sheet.axes.add_collection(stubs)


def _corners(box: Box, first: float, last: float) -> list[tuple[float, float]]:
    """From the top at ``first`` round by ``last`` and back; the side at ``first`` stays open."""
    return [(first, box.top), (last, box.top), (last, box.bottom), (first, box.bottom)]


def _draw_messages(sheet: _Sheet) -> str:
    """Draw an arrow for each message whose end is known. Returns a line for the caption if there
    are too many.
    """
    known = filter(None, (_find_ends(m, sheet.places) for m in sheet.trace.messages))
    arrows = [ends for ends in known if ends[0][0] < sheet.end and ends[1][0] > sheet.start]
    for message in sheet.trace.messages:
        if message.recv is None:
            lost = sheet.places[id(message.send)]
            sheet.axes.plot(lost.left, lost.bottom, marker="x", color=INK, markersize=6, zorder=4)
    if len(arrows) > _ARROWS:
        return f"{len(arrows):,} messages, too many to draw: choose some by between=(start, end)."
    if len(arrows) > _ARROWHEADS:
        thin = LineCollection(arrows, color=INK, linewidth=0.3, alpha=0.6, zorder=3)
        sheet.axes.add_collection(thin)
        return ""
    for tail, head in arrows:
        arrow = FancyArrowPatch(tail, head, zorder=3, shrinkA=0, shrinkB=0, **_ARROW)
        sheet.axes.add_patch(arrow)
    return ""


def _find_ends(message: Message, places: dict[int, Box]) -> list[tuple[float, float]] | None:
    """From the send's box, once both have called, to the recv's; None where no end is known."""
    if message.recv is None or message.recv.completed is None:
        return None
    tail, head = places[id(message.send)], places[id(message.recv)]
    if message.dst > message.src:
        return [(tail.waited_until, tail.bottom), (message.recv.completed, head.top)]
    return [(tail.waited_until, tail.top), (message.recv.completed, head.bottom)]


def _draw_ties(sheet: _Sheet) -> None:
    """Draw a line through all ranks of a collective, at the moment when the last one came; for a
    rank that left before, at the end of its call.
    """
    for call in collectives(sheet.trace):
        ends = [sheet.places[id(e)] for e in call]
        last = max(box.left for box in ends)
        moments = [last if box.right is None else min(last, box.right) for box in ends]
        heights = [(box.top + box.bottom) / 2 for box in ends]
        color, ranks = sheet.groups.get(call[0].group, (INK, ""))
        thick, dot = (0, 6) if ranks else (0.8, 2.5)
        look: dict[str, Any] = {"color": color, "linewidth": thick, "markersize": dot}
        sheet.axes.plot(moments, heights, marker="o", zorder=4, **look)


def _draw_names(sheet: _Sheet) -> None:
    """Write each call's name on its box, with bytes where they fit, in the part with more room."""
    ordered = sorted(sheet.places.values(), key=lambda b: (b.event.rank, b.left))
    for box, following in zip(ordered, [*ordered[1:], None], strict=False):
        first, last = box.left, box.right
        if last is None:
            is_followed = following is not None and following.event.rank == box.event.rank
            last = following.left if following and is_followed else sheet.end
        elif box.waited_until > first:
            parts = ((first, box.waited_until), (box.waited_until, last))
            first, last = max(parts, key=lambda part: part[1] - part[0])
        _draw_name(sheet, box, max(first, sheet.start), min(last, sheet.end))


def _draw_name(sheet: _Sheet, box: Box, first: float, last: float) -> None:
    name, nbytes = box.event.name, box.event.nbytes
    _, ranks = sheet.groups.get(box.event.group, ("", ""))
    among = f"{name} [{ranks.removeprefix('ranks ')}]" if ranks else name
    texts = [f"{among} {style.size(nbytes)}"] * (nbytes > 0) + [among, name]
    room = sheet.inches(last - first)
    text = next((t for t in texts if 0.054 * len(t) + 0.05 < room), "")
    if not text or (box.bottom - box.top) * sheet.lane < 0.11:
        return
    middle = (first + last) / 2 if box.right is not None else first + sheet.seconds(0.05)
    side = "center" if box.right is not None else "left"
    y = (box.top + box.bottom) / 2
    sheet.axes.text(middle, y, text, ha=side, bbox=_BEHIND_NAME, **_NAME)


def _draw_legend(picture: Picture, sheet: _Sheet) -> None:
    kinds, keys = {style.kind(box.event) for box in sheet.places.values()}, list[Artist]()
    for name in (name for name in style.KINDS if name in kinds):
        keys.append(Patch(facecolor=style.KINDS[name], edgecolor=INK, label=name))
    if any(box.waited_until > box.left for box in sheet.places.values()):
        keys.append(Patch(facecolor=WAITING, edgecolor=INK, hatch=_HATCH, label="waiting"))
    if sheet.gpus:
        keys.append(Line2D([], [], label="the host calls", **_CALLS))
    if named := sorted({span.name for span in sheet.trace.spans} - {"waiting"}):
        label = named[0] if len(named) == 1 else "a span, with its name"
        keys.append(Patch(facecolor=style.COMPUTE, alpha=0.3, edgecolor=FAINT, label=label))
    spoken = {box.event.group for box in sheet.places.values()}
    for color, ranks in (look for name, look in sheet.groups.items() if name in spoken):
        keys.append(Line2D([], [], color=color, linewidth=0, marker="o", label=ranks))
    if keys:
        ncols = min(6, len(keys))
        picture.legend(handles=keys, loc="outside upper left", ncols=ncols, frameon=False)


def _words(run: Run) -> str:
    """The calls, rank by rank in order of issue; with times if those are the same in every run."""
    scale, unit = style.time_unit(extent(run.trace)[1])
    columns: dict[str, Callable[[Event], str]] = {
        "rank": lambda e: str(e.rank),
        "call": lambda e: e.name,
        "peer": lambda e: _peer(e, run),
        "bytes": lambda e: f"{e.nbytes:,}",
    }
    if run.backend == "simulated":
        places = boxes(run.trace)
        tell = lambda at: "" if at is None else f"{at * scale:.6g}"  # noqa: E731
        if any(e.called is not None for e in run.trace.events):
            columns["stream"] = lambda e: e.stream or ""
            columns[f"called, {unit}"] = lambda e: tell(e.called or 0.0)
        columns[f"issued, {unit}"] = lambda e: tell(e.issued)
        columns["completed"] = lambda e: tell(e.completed)
        columns["waiting"] = lambda e: tell(places[id(e)].waited_until - e.issued)
    rows = [[text(e) for text in columns.values()] for e in run.trace.by_rank]
    heading = f"{run.world_size} rank{'s' * (run.world_size != 1)}, {run.backend}"
    return "\n".join([heading, style.table(list(columns), rows), *_other_facts(run.trace)])


def _peer(event: Event, run: Run) -> str:
    if event.is_send:
        return f"to {event.peer}"
    if event.is_recv:
        return f"from {'any' if event.peer is None else event.peer}"
    members = run.trace.groups.get(event.group, ())
    among = "" if len(members) in (0, run.world_size) else "ranks " + " ".join(map(str, members))
    root = "" if event.peer is None else f"root {event.peer}"
    return ", ".join(part for part in (root, among) if part) or "all"


def _other_facts(trace: Trace) -> Iterable[str]:
    """Lines for what the table of calls does not hold: spans, messages that nobody received, and
    the trace's note.
    """
    spans = Counter((s.rank, s.name) for s in sorted(trace.spans, key=lambda s: s.rank))
    yield from (
        f"rank {rank}: span {name}" + f" × {count}" * (count > 1)
        for (rank, name), count in spans.items()
    )
    lost = {id(m.send) for m in trace.messages if m.recv is None}
    yield from (f"{e}: never received" for e in trace.by_rank if id(e) in lost)
    yield from [trace.note] if trace.note else []
