"""Lesson 01: swap with a partner, pass to the right, take turns; send and receive alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from course_check.cases import Case, crowd, hostile, rows, tensor
from course_check.compare import ANYTHING
from course_check.exercise import Finding, Play
from course_check.rules import no_collectives
from course_check.usual_diagnoses import OfPlay, all_wait_in, only
from course_exercises.declare import exercise, marked
from course_lib.context import compute, current
from course_lib.errors import Deadlock

# ---- 01.1 exchange -------------------------------------------------------------------------------

STEP = "partners at distance"  # the name of an option
STEPS = {STEP: 2}, {STEP: 1}, {STEP: 2}


def swap(given: list[tuple], own: bool = False) -> list:
    """Each rank gets its partner's tensor; or its own, which is a mistake."""
    return [given[rank if own else p][0].clone() for rank, (_, p) in enumerate(given)]


def partner_of(case: Case, rank: int) -> int:
    """Who swaps with whom; who has nobody is its own partner."""
    step = case.options[STEP]
    other = rank + step if rank // step % 2 == 0 else rank - step
    return other if other < case.world else rank


PAIRS = {
    "own partner": "a rank is its own partner. Nobody sends to itself, and there is a result all "
    "the same.",
    "no neighbours": "partners are not neighbours. Whom does each line name?",
}


def name_pairs(case: Case) -> set[str]:
    """What is special about who swaps with whom."""
    alone = any(partner_of(case, rank) == rank for rank in range(case.world))
    marks = {"empty": case.length == 0, "no neighbours": case.options[STEP] > 1}
    return marked(marks | {"own partner": alone})


def are_in_step(play: Play) -> bool:
    """Partners wait for one another in the same call, though not all ranks wait in it."""
    waits = play.error.waits if isinstance(play.error, Deadlock) else []
    call = {w.rank: w.call.partition("(")[0] for w in waits}
    if all_wait_in("send")(play) or all_wait_in("recv")(play):
        return False
    return bool(call) and all(call.get(partner_of(play.case, rank)) == call[rank] for rank in call)


exercise(
    "01.1 exchange",
    swap,
    inputs=lambda case, rank: (tensor(case, rank), partner_of(case, rank)),
    core=lambda rng: [
        *rows("", (2, 1), (2, 3), (4, 1), (4, 3), options={STEP: 1}),
        *rows("", (4, 1), (4, rng.randrange(5, 300)), options={STEP: 2}),
        Case(4, rng.randrange(2, 50), numbers="random", calls=3, options={STEP: 2}),
    ],
    sturdy=lambda rng: [
        *rows("", (1, 1), (3, 2), (2, 0), (2 * rng.randrange(6, 10), 5), options={STEP: 1}),
        Case(8, 5, options={STEP: 4}),
        *hostile(4, 6, layouts=(2, 4), options={STEP: 1}),
        Case(4, 5, jitter=20.0, calls=4, options={STEP: 1}, later=STEPS),
    ],
    words=PAIRS,
    special=name_pairs,
    rules=[no_collectives],
    hints={
        "returns-own": "Each rank returns what it came with. Which of the two tensors has the "
        "partner's numbers?",
        "in-step": "Both partners do the same thing first: both send, or both receive. Your rule "
        "tells some pairs apart (even and odd ranks, say), but not this pair. Which rule works for "
        "any two ranks?",
    },
    mistakes={"returns-own": {"own": True}},
    diagnoses={"in-step": are_in_step},
)

# ---- 01.2 pass_right -----------------------------------------------------------------------------


def pass_on(
    given: list[tuple],
    source: Callable[[int, int], int] = lambda rank, n: (rank - 1) % n,
    closed: bool = True,
) -> list:
    """Every rank gets its left neighbour's tensor. The rest are mistakes."""
    n = len(given)
    got = [given[source(rank, n)][0].clone() for rank in range(n)]
    return got if closed or n == 1 else [ANYTHING, *got[1:]]


def pair_source(rank: int, n: int) -> int:
    """Even ranks send; odd ones receive, and then send what they have received."""
    left = (rank - 1) % n
    return left - left % 2


exercise(
    "01.2 pass_right",
    pass_on,
    inputs=lambda case, rank: (tensor(case, rank),),
    core=lambda rng: [
        *rows("", (2, 1), (2, 3), (3, 1), (3, 3), (4, 2), (5, 2)),
        Case(5, rng.randrange(9, 300), numbers="random"),
        Case(3, 4, numbers="random", calls=3),
    ],
    sturdy=lambda rng: [
        *rows("", (1, 1), (3, 0), (8, 5), (crowd(rng), 3)),
        *hostile(3, 6, layouts=(2, 4)),
    ],
    special=lambda case: set() if case.length else {"empty"},
    rules=[no_collectives],
    hints={
        "passes-left": "Every rank has its right-hand neighbour's tensor: all went to the left. "
        "To whom does a rank send?",
        "returns-own": "Each rank returns what it came with. Which of the two tensors has the "
        "neighbour's numbers?",
        "passes-on": "Some ranks pass on what they have just received, not what they came with.",
        "open-ring": "All ranks but rank 0 are right. After the last rank comes rank 0 again: "
        "whose tensor does it get?",
    },
    mistakes={
        "passes-left": {"source": lambda rank, n: (rank + 1) % n},
        "returns-own": {"source": lambda rank, n: rank},
        "passes-on": {"source": pair_source},
        "open-ring": {"closed": False},
    },
)

# ---- 01.3 in_order -------------------------------------------------------------------------------

Span = tuple[float, float]


class Work:
    """What ``in_order`` is given: takes its time, and notes when it was called."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spans: list[Span] = []

    def __call__(self) -> None:
        start = current().now()
        compute(self.seconds)
        self.spans.append((start, current().now()))

    def left(self) -> list[Span]:
        return self.spans

    def __repr__(self) -> str:
        return f"work of {self.seconds:g} s"


def call_once(given: list[tuple]) -> None:
    """Each rank has called ``work`` once, at some time."""
    for (work,) in given:
        work.spans.append((ANYTHING, ANYTHING))


def when_called(test: Callable[[list[int]], bool]) -> OfPlay:
    """This is true of how often each rank has called ``work``."""
    return lambda p: p.done and test([len(seen.args[0]) for seen in p.seen[0]])


def make_work(case: Case, rank: int) -> tuple[Work]:
    """A work whose length the case draws."""
    unit = 0.004 if case.world == 3 else 0.4  # three are played on real ranks, too
    return (Work(case.random(rank).choice((1, 2, 3, 5)) * unit),)


def find_spans(play: Play, call: int = 0) -> list[Span]:
    """When each rank worked; empty where one did not, or more than once."""
    calls = [seen.args[0] for seen in play.seen[call]] if play.done else []
    return [c[0] for c in calls] if all(len(c) == 1 for c in calls) else []


def check_turns(play: Play) -> Iterator[Finding]:
    """Rank r + 1 begins only after a message has told it that rank r has ended, in every call."""
    if any(no_collectives(play)):
        return
    for call in range(play.case.calls):
        times = find_spans(play, call)
        for rank, (before, mine) in enumerate(pairwise(times), 1):
            if mine[0] < spread_news(play, rank - 1, before[1]).get(rank, float("inf")):
                how = "begins work() before a message can have told it"
                text = f"rank {rank} {how} that rank {rank - 1} has ended"
                yield Finding("order", text, rank, call=call)


def spread_news(play: Play, rank: int, time: float) -> dict[int, float]:
    """What this rank knows at that time: when does each rank know it, told by messages?"""
    known = {rank: time}
    for m in sorted(play.trace.messages, key=lambda m: (m.send.issued, m.src, m.send.seq)):
        end = m.recv.completed if m.recv else None
        if end is not None and m.send.issued >= known.get(m.src, float("inf")):
            known[m.dst] = min(end, known.get(m.dst, float("inf")))
    return known


exercise(
    "01.3 in_order",
    call_once,
    inputs=make_work,
    core=lambda rng: [Case(w, seed=s) for w in (3, 2, 4, 5) for s in (0, rng.randrange(9, 99))],
    sturdy=lambda rng: [
        *rows("", (1, 0), (8, 0), (crowd(rng), 0)),
        *rows("", (5, 0), (6, 0), jitter=3.0),
        Case(3, calls=2),
    ],
    blank=False,
    rules=[no_collectives, check_turns],
    hints={
        "one-works-for-all": "One rank calls work() several times, and another one never does. "
        "Each rank has a work of its own.",
        "not-everywhere": "work() is to be called on every rank, and some rank never calls it. "
        "Which condition keeps it away?",
        "twice": "work() is called more than once on a rank.",
        "nobody-told": "No rank hears anything before it begins. However long it waits, the rank "
        "before it may take longer. Who tells a rank that its turn has come?",
        "too-early": "A rank begins before it can know that the one ahead of it has ended. Who "
        "tells it, and has that rank done its own work by then, and heard from the one before?",
    },
    diagnoses={
        "one-works-for-all": when_called(lambda n: 0 in n and max(n) > 1),
        "not-everywhere": when_called(lambda n: 0 in n),
        "twice": when_called(lambda n: max(n) > 1),
        "nobody-told": lambda p: only("order")(p) and not p.trace.events,
        "too-early": only("order"),
    },
)
