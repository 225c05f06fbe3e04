"""A run step by step: to play, to pause, and to go through by hand, forward and back.

    one picture, as `film` or `timeline` draws it      what a page shows of it, step by step
    ┌───────┬───────┬───────┐                          ┌───────┐
    │ start │ step 1│ step 2│                          │ step 1│  a film: one panel at a time
    ├───────┼───────┼───────┘                          └───────┘
    │ step 3│ step 4│                                  ┌────────────┬ ─ ─ ─ ─
    └───────┴───────┘                                  │ up to here │ veiled   a timeline
                                                       └────────────┴ ─ ─ ─ ─
Where no script runs, and on paper, the whole picture stands there: it holds every step.
"""

from __future__ import annotations

import base64
import html
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.draw.grid import film, number_ranges
from course_lib.draw.spacetime import extent, timeline
from course_lib.draw.style import Picture, size, time_unit
from course_lib.trace import Event, Run

_ONE_MOMENT = 0.02  # of the time shown: what lies closer together is one step
_SCRIPT = Path(__file__).with_name("stepper.js")

Place = tuple[float, float, float, float]  # left, top, width, height, as parts of the picture


class Step(NamedTuple):
    """What a page shows at a time: a part of the picture, and perhaps a veil over the future."""

    title: str
    words: str  # what it shows, for readers who cannot see it
    shown: Place
    veil: Place | None = None


class Fact(NamedTuple):
    """What happened on a rank, and when. Facts are sorted, so that of one moment what is done comes
    before what begins.
    """

    at: float
    is_beginning: bool
    what: str
    rank: int


def steps(
    story: Run | Sequence[Any], between: tuple[float, float] | None = None, caption: str = ""
) -> Picture:
    """Draw what happened step by step, with buttons to play it, pause it and go back.

    Of a Run, each step is its ``timeline`` up to a moment at which a call or a span begins or
    ends; ``between`` shows a part of it. A list of grids as ``values`` takes them makes a step of
    each, and what changed since the one before has a bold edge.

    >>> draw.steps(job, caption="A broadcast in two rounds")
    """
    if isinstance(story, Run):
        picture = timeline(story, caption, between)
        shown = list(_moments(picture, story, *(between or extent(story.trace))))
    else:
        picture = film(story, caption)
        shown = list(_panels(picture))
    picture.player = _player(picture, shown, caption) if shown else ""
    return picture


def _panels(picture: Picture) -> Iterator[Step]:
    """A step for each panel of a film, with as much room around it as the first one has."""
    picture.png()  # its parts have places once it is drawn
    lines = picture.words.splitlines()
    many = len(lines) // len(picture.axes)  # lines of words for each panel
    left, top = picture.axes[0].bbox.x0, picture.bbox.y1 - picture.axes[0].bbox.y1
    for k, axes in enumerate(picture.axes):
        (x0, y0), (x1, y1) = axes.bbox.get_points()
        place = _place(picture, x0 - left, y0 - 4, x1 + 2, y1 + top)
        yield Step(axes.get_title(loc="left"), "; ".join(lines[k * many :][:many]), place)


def _moments(picture: Picture, run: Run, start: float, end: float) -> Iterator[Step]:
    """A step for each moment at which something begins or is done."""
    picture.png()
    (scale, unit), axes = time_unit(end - start), picture.axes[0]
    drawn = axes.get_tightbbox()
    assert drawn is not None
    whole = _place(picture, 0, drawn.y0 - 4, *picture.bbox.max)  # without the caption
    facts = sorted(fact for fact in _facts(run) if start <= fact.at <= end)
    while facts:
        now = [fact for fact in facts if fact.at <= facts[0].at + _ONE_MOMENT * (end - start)]
        facts = facts[len(now) :]
        x = axes.transData.transform((now[-1].at, 0))[0]
        veil = _place(picture, x, axes.bbox.y0, axes.bbox.x1, axes.bbox.y1)
        words = f"{now[-1].at * scale:.4g} {unit}: {_sentence(now)}"
        yield Step(words, words, whole, veil)


def _place(picture: Picture, x0: float, y0: float, x1: float, y1: float) -> Place:
    """From pixels, counted upwards, to parts of the picture, counted downwards."""
    width, height = picture.bbox.size
    left, wide = round(x0 / width, 5), round((x1 - x0) / width, 5)
    return left, round(1 - y1 / height, 5), wide, round((y1 - y0) / height, 5)


def _facts(run: Run) -> Iterator[Fact]:
    """All that begins or is done. A message begins with its send and is done with its recv."""
    for event in run.trace.events:
        if not event.is_send and event.completed is not None:
            yield Fact(event.completed, False, f"{_say_event(event)} is done", event.rank)
        if not event.is_recv:
            yield Fact(event.issued, True, f"{_say_event(event)} begins", event.rank)
    for span in run.trace.spans:
        yield Fact(span.start, True, f"{span.name} begins", span.rank)


def _say_event(event: Event) -> str:
    way = f" {'to' if event.is_send else 'from'} rank {event.peer}"
    much = f" of {size(event.nbytes)}" if event.nbytes else ""
    return event.name + much + way * (not event.is_collective)


def _sentence(facts: Sequence[Fact]) -> str:
    """What happened at one moment: ``ranks 0-3: barrier is done; rank 2: send … begins``."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for fact in facts:
        ranks[fact.what].add(fact.rank)
    return "; ".join(
        f"rank{'s' * (len(who) > 1)} {number_ranges(sorted(who))}: {what}"
        for what, who in ranks.items()
    )


def _player(picture: Picture, shown: Sequence[Step], caption: str) -> str:
    """The picture as HTML, and the script that makes a stepper of it: no addresses, no ids."""
    (data, on_page), ratio = picture.png(), picture.bbox.height / picture.bbox.width
    facts = {"caption": caption, "ratio": ratio, **on_page}
    return f"""\
{make_figure("image/png", data, str(picture), shown, facts)}
<script>
{_SCRIPT.read_text(encoding="utf-8")}</script>"""


def make_figure(
    kind: str, data: bytes, alternative: str, shown: Iterable[Step], facts: dict[str, Any]
) -> str:
    """A picture with all that the script needs for a stepper of it.

    ``facts`` are the caption, the width on the page in pixels, and height / width.
    """
    facts = {"steps": [step._asdict() for step in shown], **facts}
    written = html.escape(json.dumps(facts, ensure_ascii=False)).replace("&quot;", '"')
    # A slash in base64 may look like the beginning of somebody's path, which no notebook keeps.
    source = base64.b64encode(data).decode().replace("/", "%2F")
    return f"""\
<figure class="course-steps" style="margin: 0" data-lm-suppress-shortcuts data-steps='{written}'>
<img src="data:{kind};base64,{source}" width="{facts["width"]}" alt="{html.escape(alternative)}">
</figure>"""
