"""Lesson 01: swap with a partner, pass to the right, take turns; send and receive alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise

from course_lib.checks.cases import Case, cases, crowd, hostile, tensor
from course_lib.checks.compare import ANYTHING
from course_lib.checks.diagnose import all_wait_in, found, only
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.rules import no_collectives, sends, trace_of
from course_lib.context import compute, current
from course_lib.errors import Deadlock, RankFailed

OVERWRITTEN = "The tensor that was handed in has been written over, and it is to stay as it was: "

# ---- 01.1 exchange -------------------------------------------------------------------------------

STEP = "partners at distance"  # the name of an option


def swapped(
    given: list[tuple], of: Callable[[int, int], int] = lambda rank, partner: partner,
    into: bool = False,
) -> list:  # fmt: skip
    """Each rank gets its partner's tensor. The rest are mistakes."""
    got = [given[of(r, p)][0].clone() for r, (_, p) in enumerate(given)]
    for (mine, _), theirs in zip(given, got, strict=True):
        mine.copy_(theirs if into else mine)
    return got


def partner(case: Case, rank: int) -> int:
    """Who swaps with whom; who has nobody is its own partner."""
    step = case.options[STEP]
    other = rank + step if rank // step % 2 == 0 else rank - step
    return other if other < case.world else rank


def pairs_are_special(case: Case) -> set[str]:
    alone = any(partner(case, r) == r for r in range(case.world))
    marks = {"own partner": alone, "no neighbours": case.options[STEP] > 1,
             "empty": not case.length}  # fmt: skip
    return {name for name, there in marks.items() if there}


def by_parity(play: Play) -> bool:
    """Even ranks wait in one call, odd ones in the other; partners are both even or both odd."""
    if not isinstance(play.error, Deadlock) or play.case.options[STEP] % 2:
        return False
    waits = {(w.rank % 2, "send" in w.call) for w in play.error.waits}
    return waits in ({(0, True), (1, False)}, {(0, False), (1, True)})


wrong = turned(swapped)
declare(Exercise(
    "01.1", "exchange", swapped,
    inputs=lambda case, rank: (tensor(case, rank), partner(case, rank)),
    core=lambda rng: [
        *cases((2, 4), (1, 3), options={STEP: 1}), Case(4, 3, options={STEP: 2}),
        Case(4, rng.randrange(5, 300), options={STEP: 2}),
        Case(4, rng.randrange(2, 50), numbers="random", calls=3, options={STEP: 2})],
    sturdy=lambda rng: [
        Case(1, 2, options={STEP: 1}), Case(3, 2, options={STEP: 1}), Case(2, 0, options={STEP: 1}),
        Case(8, 5, options={STEP: 4}), Case(2 * rng.randrange(6, 10), 5, options={STEP: 1}),
        *hostile(4, 6, options={STEP: 1}),
        Case(4, 5, jitter=20.0, calls=4, options={STEP: 1},
             later=tuple({STEP: step} for step in (2, 1, 2)))],
    special=pairs_are_special, fits=lambda case: case.length > 0 and "own partner" not in
    pairs_are_special(case), rules=[no_collectives],
    mistakes=[
        wrong("returns-own", "Each rank returns what it came with. Which of the two tensors has "
              "the partner's numbers?", of=lambda rank, partner: rank),
        wrong("one-sided", "One of two partners has the other's tensor, and the other one has its "
              "own: both have to give, and both to take.", {"of": min}, {"of": max}),
        wrong("not-the-partner", "Each rank has its neighbour's tensor, and the partner is "
              "somebody else.", of=lambda rank, partner: rank ^ 1),
        wrong("inbox-is-outbox", OVERWRITTEN + "what comes in needs a tensor of its own.",
              into=True),
    ],
    diagnoses=[
        Diagnosis("by-parity", "Even ranks do one thing first, odd ranks the other. That is enough "
                  "for neighbours. Ranks 0 and 2 are both even: what tells these two apart?",
                  by_parity),
    ],
))  # fmt: skip

# ---- 01.2 pass_right -----------------------------------------------------------------------------


def passed(
    given: list[tuple], of: Callable[[int, int], int] = lambda rank, n: (rank - 1) % n,
    into: bool = False, row: bool = False,
) -> list:  # fmt: skip
    """Every rank gets its left neighbour's tensor. The rest are mistakes."""
    n = len(given)
    got = [given[of(r, n)][0].clone() for r in range(n)]
    for (mine,), theirs in zip(given, got, strict=True):
        mine.copy_(theirs if into else mine)
    return [ANYTHING, *got[1:]] if row and n > 1 else got


wrong = turned(passed)
declare(Exercise(
    "01.2", "pass_right", passed, inputs=lambda case, rank: (tensor(case, rank),),
    core=lambda rng: [*cases((2, 3), (1, 3)), *cases((4, 5), (2,)),
                      Case(5, rng.randrange(9, 300), numbers="random"),
                      Case(3, 4, numbers="random", calls=3)],
    sturdy=lambda rng: [Case(1, 2), Case(3, 0), Case(8, 5), Case(crowd(rng), 3), *hostile(3, 6)],
    special=lambda case: set() if case.length else {"empty"}, rules=[no_collectives],
    mistakes=[
        wrong("passes-left", "Every rank has a neighbour's tensor, but that of the right one: it "
              "has been passed to the left.", of=lambda rank, n: (rank + 1) % n),
        wrong("returns-own", "Each rank returns what it came with. Which of the two tensors has "
              "the neighbour's numbers?", of=lambda rank, n: rank),
        wrong("pairs", "Ranks swap in pairs, and that is a ring for two ranks only: with four, "
              "whom does rank 1 send to?", of=lambda rank, n: min(rank ^ 1, n - 1)),
        wrong("open-ring", "All ranks but rank 0 are right. After the last rank comes rank 0 "
              "again: whose tensor does it get?", row=True),
        wrong("overwrites-mine", OVERWRITTEN + "what comes in needs a tensor of its own.",
              into=True),
    ],
))  # fmt: skip

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


def called(given: list[tuple], times: Callable[[int, int], int] = lambda rank, n: 1) -> None:
    """Each rank has called ``work`` once, at some time. The rest are mistakes."""
    for rank, (work,) in enumerate(given):
        work.spans += [(ANYTHING, ANYTHING)] * times(rank, len(given))


def work(case: Case, rank: int) -> tuple[Work]:
    unit = 0.004 if case.world == 3 else 0.4  # three are played on real ranks, too
    return (Work(case.random(rank).choice((1, 2, 3, 5)) * unit),)


def spans(play: Play, call: int = 0) -> list[Span]:
    """When each rank worked; empty where one did not, or more than once."""
    calls = [seen.args[0] for seen in play.seen[call]] if play.done else []
    return [c[0] for c in calls] if all(len(c) == 1 for c in calls) else []


def taking_turns(play: Play) -> Iterator[Finding]:
    """Rank r + 1 begins only after a message has told it that rank r has ended, in every call."""
    for call in range(0 if found("collective")(play) else play.case.calls):
        times = spans(play, call)
        for rank, (before, mine) in enumerate(pairwise(times), 1):
            if mine[0] < news(play, rank - 1, before[1]).get(rank, float("inf")):
                how = "before rank {} has ended" if mine[0] < before[1] else (
                    "after rank {} has ended, and no message had told it so")  # fmt: skip
                again = "again " if call else ""
                yield Finding("order", f"rank {rank} begins work() {again}{how.format(rank - 1)}",
                              rank)  # fmt: skip


def news(play: Play, rank: int, time: float) -> dict[int, float]:
    """What this rank knows at that time: when does each rank know it, told by messages?"""
    known = {rank: time}
    for m in sorted(trace_of(play).messages, key=lambda m: (m.send.issued, m.src, m.send.seq)):
        end = m.recv.completed if m.recv else None
        if end is not None and m.send.issued >= known.get(m.src, float("inf")):
            known[m.dst] = min(end, known.get(m.dst, float("inf")))
    return known


def silent(play: Play) -> bool:
    return only("order")(play) and not trace_of(play).events


def too_early(play: Play) -> bool:
    """A rank tells the next one before its own work has ended."""
    times = spans(play)
    return only("order")(play) and any(
        e.peer == r + 1 and e.issued < times[r][1]
        for r in range(len(times))
        for e in sends(play, r)
    )


def together(play: Play) -> bool:
    """Two ranks work at the same time."""
    return any(a[0] < b[1] and b[0] < a[1] for a, b in combinations(spans(play), 2))


def last_is_stuck(play: Play) -> bool:
    """Only the last rank is stuck, in a send; or it was refused one."""
    last, error = play.case.world - 1, play.error
    if isinstance(error, Deadlock):
        return {w.rank for w in error.waits} == {last} and "send" in error.waits[0].call
    return isinstance(error, RankFailed) and error.rank == last and "no rank" in str(error)


wrong = turned(called)
declare(Exercise(
    "01.3", "in_order", called, inputs=work,
    core=lambda rng: [Case(w, seed=s) for w in (3, 2, 4, 5) for s in (0, rng.randrange(9, 99))],
    sturdy=lambda rng: [Case(1), Case(8), Case(crowd(rng)), *cases((5, 6), (0,), jitter=3.0),
                        Case(3, calls=2)],
    length_is="", blank=False, fits=lambda case: case.world > 1,
    rules=[no_collectives, taking_turns],
    mistakes=[
        wrong("not-everywhere", "work() is to be called on every rank, and some rank never calls "
              "it. Which condition keeps it away?", {"times": lambda rank, n: 0},
              {"times": lambda rank, n: rank == 0}, {"times": lambda rank, n: rank > 0},
              {"times": lambda rank, n: rank < n - 1 or n == 1}),
        wrong("twice", "work() is called more than once on a rank.", {"times": lambda rank, n: 2},
              {"times": lambda rank, n: 1 + (rank == 0)}, {"times": lambda rank, n: n}),
    ],
    diagnoses=[
        Diagnosis("barrier", "A collective brings everybody together. Here one rank has to tell "
                  "the next that it is done, and send and recv are enough for that.",
                  found("collective")),
        Diagnosis("all-at-once", "Every rank begins at once. Who tells the next one that it is its "
                  "turn?", lambda p: silent(p) and all(start == 0 for start, _ in spans(p))),
        Diagnosis("sleeps", "Waiting for some time puts nothing in order: the rank before may take "
                  "longer than anybody waits. What could tell the next one that it is its turn?",
                  silent),
        Diagnosis("token-too-early", "The word is passed on before the work is done, so the next "
                  "rank begins while this one is busy.", too_early),
        Diagnosis("two-at-once", "Two ranks work at the same time, although each that sends has "
                  "ended its work: who begins without having heard from the rank before?",
                  lambda p: only("order")(p) and together(p)),
        Diagnosis("another-order", "One rank works at a time, but not in the order of their "
                  "numbers.", lambda p: only("order")(p) and spans(p) != sorted(spans(p))),
        Diagnosis("rank-0-waits", "Every rank waits for a word from another. Who begins?",
                  all_wait_in("recv")),
        Diagnosis("last-sends-on", "After the last rank there is nobody left to tell.",
                  last_is_stuck),
    ],
))  # fmt: skip
