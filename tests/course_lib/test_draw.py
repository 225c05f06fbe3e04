"""Pictures tell what the trace says: in words exactly, in shapes where their places matter."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation
from nbval.plugin import get_sanitize_patterns
from PIL import Image

from course_lib import draw
from course_lib.draw import lanes, style
from course_lib.draw.style import RANKS
from course_lib.errors import Deadlock, Hang, Wait
from course_lib.trace import Event, Run, Span, Trace
from course_staff.authoring.execute import clean_text, read_rules

WORLD = {"w": (0, 1, 2, 3), "pair": (0, 1)}


def event(
    rank: int,
    op: str,
    peer: int | None,
    issued: float,
    completed: float | None,
    seq: int,
    nbytes: int = 4000,
    group: str = "w",
    async_op: bool = False,
) -> Event:
    what = rank, op, peer, group, nbytes, "float32", (nbytes // 4,), issued, completed, None
    return Event(*what, seq=seq, async_op=async_op)


def a_run(events: list[Event], spans: tuple[Span, ...] = (), backend: str = "gloo") -> Run:
    events = sorted(events, key=lambda e: (e.issued, e.rank))
    return Run([None] * 4, Trace(events, list(spans), WORLD), 1.0, 4, backend)


SEND = event(0, "send", 1, 2.0, 5.0, 0)
RECV = event(1, "recv", 0, 1.0, 5.0, 0)
REDUCES = [event(rank, "all_reduce", None, 6.0 + rank, 10.0, 1) for rank in range(4)]
STORY = a_run([SEND, RECV, *REDUCES], (Span(3, "forward", 0.0, 4.0),))


# ---------------------------------------------------------------- waiting and overlap


WAITED = {
    "a send for its recv": ([SEND, event(1, "recv", 0, 3.0, 5.0, 0)], [3.0, 3.0]),
    "a buffered send for nobody": ([SEND, event(1, "recv", 0, 6.0, 7.0, 0)], [2.0, 6.0]),
    "a collective for its last rank": (REDUCES, [9.0] * 4),
    "a broadcast for its root": (
        [event(rank, "broadcast", 1, at, 9.0, 0) for rank, at in enumerate((1.0, 3.0, 2.0, 8.0))],
        [3.0, 3.0, 3.0, 8.0],
    ),
    "the k-th call of a group for the k-th": (
        [
            event(0, "all_reduce", None, 1.0, 2.0, 0, group="pair"),
            event(0, "all_reduce", None, 3.0, 4.0, 1),
            event(1, "all_reduce", None, 1.5, 4.0, 0),
        ],
        [1.0, 3.0, 3.0],
    ),
}


@pytest.mark.parametrize(("events", "until"), WAITED.values(), ids=WAITED.keys())
def test_who_waits_for_whom(events: list[Event], until: list[float]) -> None:
    places = lanes.boxes(a_run(events).trace)
    assert [places[id(e)].waited_until for e in events] == until


# ---------------------------------------------------------------- timeline


SIMULATED_IN_WORDS = """\
4 ranks, simulated
rank  call        peer    bytes  issued, s  completed  waiting
   0  send        to 1    4,000          2          5        0
   0  all_reduce  all     4,000          6         10        3
   1  recv        from 0  4,000          1          5        1
   1  all_reduce  all     4,000          7         10        2
   2  all_reduce  all     4,000          8         10        1
   3  all_reduce  all     4,000          9         10        0
rank 3: span forward"""

# Times are told where they are virtual, and so the same every time.
IN_WORDS = "\n".join(line[:31].rstrip() for line in SIMULATED_IN_WORDS.splitlines())
STORY_IN_WORDS = IN_WORDS.replace("simulated", "gloo")


def artists(picture: draw.Picture, kind: type) -> list:
    return [a for a in picture.axes[0].get_children() if type(a) is kind]


def polygons(picture: draw.Picture, color: str) -> list[tuple[float, float]]:
    """From when to when each box of one colour goes."""
    found = artists(picture, PolyCollection)
    colored = [c for c in found if to_hex(c.get_facecolor()[0]).upper() == color and c.zorder == 2]
    boxes = [path.vertices for c in colored for path in c.get_paths()]
    return [(box[:, 0].min(), box[:, 0].max()) for box in boxes]


def test_timeline_in_words_tells_times_where_they_are_virtual() -> None:
    assert draw.timeline(STORY).words == STORY_IN_WORDS
    simulated = a_run(STORY.trace.events, tuple(STORY.trace.spans), "simulated")
    assert draw.timeline(simulated).words == SIMULATED_IN_WORDS


def test_words_name_peers_groups_and_what_went_wrong() -> None:
    events = [
        event(0, "send", 3, 1.0, None, 0, async_op=True),
        event(1, "recv", None, 1.0, None, 0),
        event(0, "broadcast", 0, 2.0, 3.0, 1, group="pair"),
    ]
    lines = [" ".join(line.split()) for line in draw.timeline(a_run(events)).words.splitlines()]
    assert lines == [
        "4 ranks, gloo",
        "rank call peer bytes",
        "0 isend to 3 4,000",
        "0 broadcast root 0, ranks 0 1 4,000",
        "1 recv from any 4,000",
        "rank 0 send to 3 4000 bytes: never received",
    ]


def test_boxes_arrows_and_ties_lie_at_their_times_and_waiting_is_hatched() -> None:
    picture = draw.timeline(STORY)
    assert polygons(picture, style.SEND) == polygons(picture, style.RECV) == [(2.0, 5.0)]
    assert sorted(polygons(picture, style.COLLECTIVE)) == [(9.0, 10.0)] * 4
    waits = [(1.0, 2.0), (6.0, 9.0), (7.0, 9.0), (8.0, 9.0)]
    assert sorted(polygons(picture, style.WAITING)) == waits
    (arrow,) = artists(picture, FancyArrowPatch)
    (x0, y0), (x1, y1) = arrow._posA_posB
    assert (x0, x1) == (2.0, 5.0)
    assert 0 < y0 < 0.5 < y1 < 1  # from the lower edge of rank 0's box to the upper of rank 1's
    spans = (Span(0, "backward", 0.0, 1.0), Span(0, "waiting", 1.0, 2.0))
    bands = draw.timeline(a_run([], spans)).axes[0].collections[:2]
    assert [band.get_hatch() is not None for band in bands] == [False, True]


def test_an_empty_trace_says_why() -> None:
    nothing = Run([], Trace(note="no hooks before torch 2.14"), 0.0, 2, "nccl")
    for picture in (draw.timeline(nothing), draw.traffic(nothing)):
        assert picture.words.endswith("no hooks before torch 2.14")
        assert "no hooks before torch 2.14" in picture.get_supxlabel()
    assert draw.steps(nothing).player == ""


def ring(n: int) -> Run:
    alpha, beta, events = 5e-6, 1e-5, []
    for step in range(2 * (n - 1)):
        at = step * (alpha + beta)
        for r in range(n):
            sent, came = at + beta, at + alpha + beta
            events.append(event(r, "send", (r + 1) % n, at, sent, 2 * step, async_op=True))
            events.append(event(r, "recv", (r - 1) % n, at, came, 2 * step + 1))
    return Run([None] * n, Trace(events, [], {"w": tuple(range(n))}), 1e-3, n, "simulated")


def test_of_too_many_messages_a_part_is_shown_and_the_picture_and_its_repr_stay_small() -> None:
    picture = draw.timeline(ring(36))
    assert artists(picture, FancyArrowPatch) == []
    assert [len(c.get_segments()) for c in artists(picture, LineCollection)] == [0]
    assert "2,520 messages, too many to draw" in picture.get_supxlabel()
    assert len(picture._repr_png_()[0]) < 100_000
    assert len(picture.words.splitlines()) == 2 + 36 * 70 * 2
    assert len(repr(picture).splitlines()) == 41
    assert repr(picture).endswith("… 5002 more lines in .words")
    assert len(picture.axes[0].get_yticks()) == 18


# ---------------------------------------------------------------- traffic


def test_traffic_counts_messages_and_lists_collectives_in_one_scale() -> None:
    small, large = a_run([SEND, RECV, *REDUCES]), a_run([event(0, "send", 1, 5.5, 6.0, 1, 10**6)])
    picture = draw.traffic(small, large, titles=["small"])
    assert picture.words == (
        "small:\nrank 0 to rank 1: 4,000 bytes\n"
        "all_reduce: 4 calls on 4 ranks, tensors of 16,000 bytes in all\n"
        "rank 0 to rank 1: 1,000,000 bytes"
    )
    texts = {tuple(t.get_position()): t.get_text() for t in picture.axes[1].texts}
    assert texts[1, 0] == "1 MB"  # x is the destination, y the source
    assert sorted(texts.values()) == ["1 MB"] + ["·"] * 15
    assert [axes.get_title() for axes in picture.axes] == ["small", ""]
    assert {axes.images[0].norm.vmax for axes in picture.axes} == {2_200_000.0}
    assert picture.get_figwidth() <= style.WIDTH


def test_what_is_said_in_a_group_names_its_ranks_and_has_its_colour() -> None:
    pair = [event(rank, "all_reduce", None, 6.0, 10.0, 1, group="pair") for rank in (0, 1)]
    run = a_run(pair)
    traffic, timeline = draw.traffic(run), draw.timeline(run)
    assert "all_reduce among ranks 0 1: 2 calls on 2 ranks" in traffic.words
    [axes] = timeline.axes
    assert "all_reduce [0 1] 4 kB" in [text.get_text() for text in axes.texts]
    assert to_hex(axes.lines[-1].get_color()) == style.GROUPS[0].lower()
    assert "ranks 0 1" in [text.get_text() for text in timeline.legends[0].get_texts()]


def test_a_mesh_has_a_line_through_the_ranks_of_each_group_that_was_used() -> None:
    groups = {"w": (0, 1, 2, 3), "row": (0, 1), "column": (1, 3), "unused": (2, 3)}
    said = [
        event(r, "all_reduce", None, 6.0, 7.0, k, group=name)
        for k, name in enumerate(("w", "row", "row", "column"))
        for r in groups[name]
    ]
    picture = draw.mesh(Run([], Trace(said, [], groups), 1.0, 4, "gloo"), (2, 2), marked=[3])
    used = "ranks 0 1: all_reduce × 2\nranks 1 3: all_reduce"
    assert picture.words == f"2 rows of 2 ranks\n{used}\nmarked: 3"
    [axes] = picture.axes
    ends = [[[round(place) for place in line.get_data()[k]] for k in (0, 1)] for line in axes.lines]
    assert ends == [[[0, 1], [0, 0]], [[1, 1], [0, 1]]]  # columns, rows


# ---------------------------------------------------------------- values


def fills(picture: draw.Picture, panel: int = 0) -> list[str]:
    return [to_hex(c).upper() for c in picture.axes[panel].collections[0].get_facecolor()]


def test_values_say_who_has_what() -> None:
    before = [torch.tensor([1.0, 2.5]), torch.tensor([10.0, 2.5])]
    picture = draw.values(before, [[11, None], None], titles=["before", "after"])
    assert picture.words == (
        "before:\nrank 0: 1  2.5\nrank 1: 10  2.5\nafter:\nrank 0: 11  –\nrank 1: nothing"
    )
    both = [torch.tensor([0]), torch.tensor([1])]
    results = [{"mine": torch.tensor(r), "all": both} for r in range(2)]
    picture = draw.values(Run(results, Trace(), 0.0, 2, "gloo"))  # a grid of each key
    assert picture.words == "mine:\nrank 0: 0\nrank 1: 1\nall:\nrank 0: 0  1\nrank 1: 0  1"
    assert [axes.get_title(loc="left") for axes in picture.axes] == ["mine", "all"]


def test_the_colour_is_that_of_the_rank_it_came_from() -> None:
    picture = draw.values([[1, 5], [2, 5]], [[2, 5], [3, None]])
    zero, one = RANKS[:2]
    assert fills(picture, 0) == [zero, style.PAPER, one, style.PAPER]
    assert fills(picture, 1) == [one, style.PAPER, style.WAITING, style.PAPER]


def test_contributors_are_stripes_and_ranges() -> None:
    picture = draw.values([[{0, 1, 2, 5}], [{1}], [set()], [{0, 4, 5}], [0], [0]])
    words = "rank 0: {0-2,5}\nrank 1: {1}\nrank 2: {}\nrank 3: {0,4,5}\n"
    assert picture.words.startswith(words)
    ranks = [RANKS[r] for r in (0, 1, 2, 5, 1)]
    assert fills(picture)[:5] == ranks


# ---------------------------------------------------------------- steps


def told(picture: draw.Picture) -> list[dict]:
    """What the page is given to show, step by step."""
    found = re.search(r"data-steps='([^']*)'", picture.player)
    assert found
    return json.loads(html.unescape(found[1]))["steps"]


def test_steps_of_grids_show_one_panel_after_another_with_changes_bold() -> None:
    picture = draw.steps([[[1, 2], [10, 20]], [[1, 12], [10, 20]], [[1, 12], [11, 12]]])
    assert picture.words == (
        "start:\nrank 0: 1  2\nrank 1: 10  20\nstep 1 of 2:\nrank 0: 1  12\nrank 1: 10  20\n"
        "step 2 of 2:\nrank 0: 1  12\nrank 1: 11  12"
    )
    assert [step["title"] for step in told(picture)] == ["start", "step 1 of 2", "step 2 of 2"]
    assert told(picture)[1]["words"] == "step 1 of 2:; rank 0: 1  12; rank 1: 10  20"
    bold = [len(axes.collections[2].get_paths()) for axes in picture.axes]
    assert bold == [0, 1, 2]
    for step, axes in zip(told(picture), picture.axes, strict=True):
        left, top, wide, high = step["shown"]
        place = axes.get_position()
        assert left < place.x0 < place.x1 < left + wide
        assert top < 1 - place.y1 < 1 - place.y0 < top + high
        assert step["shown"][2:] == pytest.approx(told(picture)[0]["shown"][2:], abs=1e-3)


STEPS_OF_THE_STORY = [
    "0 s: rank 3: forward begins",
    "2 s: rank 0: send of 4 kB to rank 1 begins",
    "5 s: rank 1: recv of 4 kB from rank 0 is done",
    "6 s: rank 0: all_reduce of 4 kB begins",
    "7 s: rank 1: all_reduce of 4 kB begins",
    "8 s: rank 2: all_reduce of 4 kB begins",
    "9 s: rank 3: all_reduce of 4 kB begins",
    "10 s: ranks 0-3: all_reduce of 4 kB is done",
]


def test_steps_of_a_run_lift_the_veil_from_moment_to_moment() -> None:
    picture = draw.steps(STORY, caption="A claim")
    assert picture.words == STORY_IN_WORDS
    assert [step["title"] for step in told(picture)] == STEPS_OF_THE_STORY
    axes = picture.axes[0]
    for step, moment in zip(told(picture), (0, 2, 5, 6, 7, 8, 9, 10), strict=True):
        x = axes.transData.transform((moment, 0))[0] / picture.bbox.width
        left, _, wide, _ = step["veil"]
        assert (left, left + wide) == pytest.approx((x, axes.get_position().x1), abs=1e-4)
        bottom = (1 - step["shown"][3]) * picture.bbox.height
        assert 10 < bottom < axes.get_tightbbox().y0, "the axis is shown, the caption is not"
    part = draw.steps(STORY, between=(4.0, 6.5))
    assert [step["title"] for step in told(part)] == STEPS_OF_THE_STORY[2:4]


def test_a_stepper_is_one_piece_of_html_that_says_what_it_shows(root: Path) -> None:
    """Nothing is fetched, nothing has an id that another cell's could have, and the rules for text
    leave it as it is when a notebook is written. Nothing in it is compared."""
    player = draw.steps(STORY, caption="5 < 6 & 'so on'").player
    assert not re.search(r"https?:|\bid=|getElementById", player)
    assert html.escape(STORY_IN_WORDS) in player
    rules = root / "notebooks" / "sanitize.cfg"
    assert clean_text(player, read_rules(rules)) == player
    for pattern, replacement in get_sanitize_patterns(rules.read_text()):
        player = re.sub(pattern, replacement, player)
    assert player == "STEPPER"


# ---------------------------------------------------------------- waits


WAITS = [
    Wait(1, "recv(src=0)", None, (0,)),
    Wait(0, "recv(src=1)", None, (1,)),
    Wait(2, "barrier()", None, (0, 1, 3)),
]
DEADLOCK = Deadlock("…", waits=WAITS, cycle=(0, 1))


def test_waits_in_words_and_the_cycle_stands_out() -> None:
    picture = draw.waits(DEADLOCK)
    assert picture.words == (
        "rank 0 waits in recv(src=1) for 1\n"
        "rank 1 waits in recv(src=0) for 0\n"
        "rank 2 waits in barrier() for 0, 1, 3\n"
        "rank 3 does not wait\n"
        "cycle: 0 → 1 → 0"
    )
    assert "cycle" not in draw.waits(Hang("…", waits=DEADLOCK.waits)).words
    assert draw.waits(Hang("…")).words == ""
    edges = [text for text in picture.axes[0].texts if isinstance(text, Annotation)]
    colors = [to_hex(edge.arrow_patch.get_edgecolor()).upper() for edge in edges]
    assert sorted(colors) == sorted([style.ALARM] * 2 + [style.FAINT] * 3)


# ---------------------------------------------------------------- charts


def test_measured_numbers_are_in_the_words_but_not_in_what_a_notebook_stores() -> None:
    bars = draw.bars({"spawn": 4.123, "forkserver": 0.11}, "s")
    assert bars.words == "spawn: 4.123 s\nforkserver: 0.11 s"
    assert repr(bars) == "bars, s: spawn, forkserver"
    lines = draw.lines({"measured": ([1, 10], [2.0, 3.0])}, "bytes", "s", loglog=True)
    assert lines.words == "measured: (1, 2), (10, 3)"
    assert repr(lines) == "lines, s against bytes: measured"
    assert repr(draw.bars({"ring": 3}, "messages", exact=True)) == "ring: 3 messages"


# ---------------------------------------------------------------- every picture


@pytest.mark.slow
def test_a_cell_shows_it_once_and_its_words_with_its_caption_below() -> None:
    pictures = [
        lambda: draw.timeline(STORY, caption="A claim"),
        lambda: draw.steps([[[1], [2]], [[2], [1]]], caption="A claim"),
        lambda: draw.bars({"a": 1}, "s", caption="A claim"),
    ]
    for make, kind in zip(pictures, ("image/png", "text/html", "image/png"), strict=True):
        picture = make()
        data, metadata = DisplayFormatter().format(picture)
        assert set(data) == {kind, "text/plain"}  # one picture, once: nobody stores it twice
        assert data["text/plain"] == (picture.words if picture.plain is None else picture.plain)
        png, size_shown = picture.png()
        with Image.open(io.BytesIO(png)) as image:
            assert image.convert("RGB").getpixel((0, 0)) > (245, 245, 245)
            assert metadata.get("image/png", size_shown)["width"] <= image.width
        assert plt.get_fignums() == []  # pyplot does not know it, so nothing shows it again
        assert picture.get_supxlabel().startswith("A claim")
        with matplotlib.style.context("dark_background"):  # the reader's own does not leak in
            assert make().png()[0] == png
