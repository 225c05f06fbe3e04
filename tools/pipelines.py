"""The site's pipelines to play with: GPipe above 1F1B, as the simulator recorded them.

    Stages [4]  Micro-batches [8]     each choice has a figure of its own
    GPipe   0  FFFFFFFF//BBBBBBBB     a row for each stage: forward, backward, hatched: idle
               ╵╵╵╵╵╵╵╵  ╷╷╷╷╷╷╷╷     between rows, each message from its send to its receive
    ◀ Play ▶ ────────────             the stepper of ``draw.steps``

The schedules, and what plays them, are cells of lesson 15. One run records them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch.distributed as dist

from course_lib import Run, Span, simulate
from course_lib.draw.stepper import Step, make_figure
from figures.make import names_of

ROOT = Path(__file__).resolve().parents[1]
STAGES, MICRO_BATCHES = (2, 3, 4), range(1, 9)
FIRST = (4, 8)  # what is shown before anything is chosen
WIDTH, LEFT, ROW, GAP, TITLE, AXIS = 360, 13, 15, 6, 16, 14  # of the picture, in units of its own
COLOURS = {"F": ("#8FCBEF", "#000"), "B": ("#0B5A8A", "#FFF")}  # of a box, and of its number
HATCH = (
    '<defs><pattern id="idle" width="4" height="4" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0V4" stroke="#999"/></pattern></defs>'
)
CHOOSE = """\
{
const makeSteppers = () => {
%s};
const box = document.querySelector(".course-pipelines");
const selects = [...box.querySelectorAll("select")];
for (const select of selects) {
  select.onchange = () => {
    const chosen = selects.map((one) => one.value).join(" ");
    const { content } = box.querySelector(`template[data-of="${chosen}"]`);
    box.querySelector("figure").replaceWith(content.cloneNode(true));
    makeSteppers();
  };
}
makeSteppers();
}
"""


@dataclass
class Pipeline:
    """What the stages of one pipeline did, from 0 on; times are in ms."""

    title: str
    n: int
    spans: list[Span]
    messages: list[tuple[int, int, float, float]]  # from, to, sent, received

    @property
    def total(self) -> float:
        return max(span.end for span in self.spans)

    @property
    def idle(self) -> float:
        """The share of all stages' time in which they compute nothing."""
        return 1 - sum(s.end - s.start for s in self.spans) / (self.n * self.total)

    def doing(self, stage: int, at: float) -> str:
        """What a stage does just before this moment: F3, B0 or idle."""
        mine = (s.name for s in self.spans if s.rank == stage and s.start < at <= s.end)
        return next(mine, "idle")

    def alive(self, at: float) -> list[int]:
        """By stage, how many micro-batches are between their forward and their backward pass."""
        done = [(s.rank, s.name[0]) for s in self.spans if s.end <= at]
        return [done.count((stage, "F")) - done.count((stage, "B")) for stage in range(self.n)]

    def most_alive(self) -> int:
        return max(max(self.alive(span.end)) for span in self.spans)


def record() -> dict[tuple[int, int], list[Pipeline]]:
    """Both schedules for all numbers of stages and micro-batches, each on ranks of its own."""
    names = names_of("15_pipeline", "most_alive")
    plans: list[tuple[str, int, int]] = []
    orders: list[list] = []
    for n, m in product(STAGES, MICRO_BATCHES):
        gpipe = [[(rank, kind, i) for kind in "FB" for i in range(m)] for rank in range(n)]
        for title, plan in (("GPipe", gpipe), ("1F1B", names["one_after_one"](n, m))):
            plans.append((title, n, len(orders)))
            orders += plan
    home = [range(first, first + n) for _, n, first in plans for _ in range(n)]

    def play() -> None:
        names["play"](orders, home[dist.get_rank()])

    job = simulate(play, world_size=len(orders), network=names["FREE"], buffered=True)
    played = [part_of(job, *plan) for plan in plans]
    pairs = zip(played[::2], played[1::2], strict=True)
    return dict(zip(product(STAGES, MICRO_BATCHES), map(list, pairs), strict=True))


def part_of(job: Run, title: str, n: int, first: int) -> Pipeline:
    """The pipeline on the n ranks from ``first`` on."""
    spans = [
        Span(span.rank - first, span.name, round(1e3 * span.start, 3), round(1e3 * span.end, 3))
        for span in job.trace.spans
        if first <= span.rank < first + n and span.name != "compute"
    ]
    messages = [
        (m.src - first, m.dst - first, 1e3 * m.send.issued, 1e3 * m.recv.completed)
        for m in job.trace.messages
        if first <= m.src < first + n and m.recv and m.recv.completed is not None
    ]
    return Pipeline(title, n, spans, messages)


# ---- as a picture --------------------------------------------------------------------------------


def bottom(k: int, n: int) -> int:
    """Where the k-th pipeline of n stages ends, counted from 1."""
    return k * (TITLE + n * (ROW + GAP))


def height(pair: list[Pipeline]) -> int:
    return bottom(2, pair[0].n) + AXIS


def svg(pair: list[Pipeline]) -> str:
    """Both pipelines, one above the other, over one axis of time."""
    n, total = pair[0].n, max(pipeline.total for pipeline in pair)
    scale, high = (WIDTH - LEFT - 1) / total, height(pair)
    drawn = [part for k, one in enumerate(pair) for part in draw(one, bottom(k, n), scale)]
    every = 3 if total < 20 else 6
    for at in range(0, int(total) + 1, every):
        drawn.append(text(LEFT + at * scale, high - 3, f"{at} ms" if not at else str(at)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" width="{2 * WIDTH}" '
        f'font-family="sans-serif" font-size="9">{HATCH}<rect width="100%" height="100%" '
        f'fill="#FFF"/>{"".join(drawn)}</svg>'
    )


def draw(pipeline: Pipeline, top: float, scale: float) -> Iterator[str]:
    yield text(LEFT, top + 11, pipeline.title, "font-weight='bold' font-size='11'")
    rows = [top + TITLE + stage * (ROW + GAP) for stage in range(pipeline.n)]
    for stage, y in enumerate(rows):
        yield text(1, y + 11, str(stage))
        yield box(LEFT, y, pipeline.total * scale, "url(#idle)")
    for span in pipeline.spans:
        (colour, ink), x, y = COLOURS[span.name[0]], LEFT + span.start * scale, rows[span.rank]
        wide = (span.end - span.start) * scale
        yield box(x, y, wide, colour, "stroke='#FFF' stroke-width='.6'")
        yield text(x + wide / 2, y + 11, span.name[1:], f"fill='{ink}' text-anchor='middle'")
    for source, target, sent, received in pipeline.messages:
        down = source < target
        y0, y1 = (rows[source] + ROW, rows[target]) if down else (rows[source], rows[target] + ROW)
        x0, x1 = LEFT + sent * scale, LEFT + received * scale
        yield f"<path d='M{x0:.5g} {y0}L{x1:.5g} {y1}' stroke='#222' stroke-width='1.2'/>"


def box(x: float, y: float, wide: float, fill: str, more: str = "") -> str:
    return f"<rect x='{x:.5g}' y='{y}' width='{wide:.5g}' height='{ROW}' fill='{fill}' {more}/>"


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f"<text x='{x:.5g}' y='{y}' {more}>{words}</text>"


# ---- as a stepper --------------------------------------------------------------------------------


def steps(pair: list[Pipeline]) -> Iterator[Step]:
    """A step for each moment at which a stage of either pipeline begins or ends something."""
    total = max(pipeline.total for pipeline in pair)
    for at in sorted({t for one in pair for s in one.spans for t in (s.start, s.end)}):
        told = f"{at:g} ms" + "".join(f"; {say(pipeline, at)}" for pipeline in pair if at)
        x = (LEFT + at * (WIDTH - LEFT - 1) / total) / WIDTH
        veil = (round(x, 5), 0, round(1 - x, 5), round(1 - AXIS / height(pair), 5))
        yield Step(told, told, (0, 0, 1, 1), veil)


def say(pipeline: Pipeline, at: float) -> str:
    """What its stages have just done, and how many micro-batches each of them holds."""
    done = " ".join(pipeline.doing(stage, at) for stage in range(pipeline.n))
    return f"{pipeline.title}: {done}, alive {' '.join(map(str, pipeline.alive(at)))}"


def figure(n: int, m: int, pair: list[Pipeline]) -> str:
    """The picture with what its stepper shows, as ``draw.steps`` writes it."""
    caption = f"{n} stages, {m} micro-batch{'es' * (m > 1)}. " + " ".join(map(sum_up, pair))
    facts = {"caption": caption, "width": 600, "ratio": height(pair) / WIDTH}
    return make_figure("image/svg+xml", svg(pair).encode(), caption, steps(pair), facts)


def sum_up(pipeline: Pipeline) -> str:
    return (
        f"{pipeline.title} takes {pipeline.total:g} ms, idles {pipeline.idle:.0%} of it, and holds "
        f"at most {pipeline.most_alive()} on a stage."
    )


def pipelines() -> str:
    """The choices, the figure of the first one, the others as templates, and what swaps them."""
    figures = {size: figure(*size, pair) for size, pair in record().items()}
    templates = "\n".join(
        f'<template data-of="{n} {m}">{figure}</template>' for (n, m), figure in figures.items()
    )
    script = (ROOT / "course_lib" / "draw" / "stepper.js").read_text(encoding="utf-8")
    return f"""\
<div class="course-pipelines">
<p>{select("Stages", STAGES, FIRST[0])} {select("Micro-batches", MICRO_BATCHES, FIRST[1])}</p>
{figures[FIRST]}
{templates}
<script>
{CHOOSE % script}</script>
</div>"""


def select(label: str, values: tuple[int, ...] | range, first: int) -> str:
    options = "".join(f"<option{' selected' * (v == first)}>{v}</option>" for v in values)
    return f"<label>{label} <select>{options}</select></label>"
