"""Lesson 01: swap with a partner, pass to the right, take turns; send and receive alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from course_lib.checks.cases import Case, cases, crowd, moved, nbytes, tensor
from course_lib.checks.compare import same
from course_lib.checks.diagnoses import (
    all_wait_in,
    alone,
    both,
    every,
    found,
    hazard,
    only_spread,
    only_where,
    raised,
    returns,
    some,
)
from course_lib.checks.exercise import (
    Diagnosis,
    Evidence,
    Exercise,
    Finding,
    Play,
    Seen,
    declare,
)
from course_lib.checks.rules import no_collectives, receives_at_least, sends, trace_of
from course_lib.context import compute, current
from course_lib.errors import Deadlock, RankFailed
from course_lib.trace import Trace

STRIDED = Diagnosis(
    "strided", "A tensor's elements need not lie side by side, or in this order: send and recv "
    "want them side by side, and move them as they lie.",
    only_spread,
)  # fmt: skip

# ---- exchange --------------------------------------------------------------------------------


def partner(case: Case, rank: int) -> int:
    """Who swaps with whom: at distance ``case.options["distance"]``, the odd one with itself."""
    step = case.options["distance"]
    other = rank + step if rank // step % 2 == 0 else rank - step
    return other if other < case.world else rank


def swapped(play: Play, call: int) -> list[Seen]:
    given, case = play.inputs[call], play.case.call(call)
    return [Seen(given[partner(case, r)][0], given[r]) for r in range(case.world)]


def is_own(play: Play, rank: int) -> bool:
    return same(play.got(rank).returned, play.given(rank))


def is_right(play: Play, rank: int) -> bool:
    return same(play.got(rank).returned, play.given(partner(play.case, rank)))


def one_sided(play: Play) -> bool:
    """Of two partners one has the other's tensor, and one has not."""
    pairs = [(r, partner(play.case, r)) for r in range(play.case.world)]
    return play.done and all(is_right(play, a) != is_right(play, b) for a, b in pairs if a != b)


def overwritten(play: Play) -> bool:
    """The tensor that was sent has been written to, on one rank at least."""
    if hazard("written before wait")(play):
        return True
    return play.done and any(f.kind == "argument changed" for f in play.findings)


def between_equals(play: Play) -> bool:
    """Partners that are both even or both odd."""
    return play.case.options["distance"] % 2 == 0


def exchange_core(rng: random.Random) -> list[Case]:
    worlds = [(2, 1), (4, 1), (4, 2)]
    return [
        c
        for w, d in worlds
        for n in (1, 3, rng.randrange(5, 300))
        for c in cases([w], [n], options={"distance": d})
    ] + [Case(4, rng.randrange(2, 50), numbers="random", seed=3, calls=3, options={"distance": 2})]


def exchange_sturdy(rng: random.Random) -> list[Case]:
    near = {"distance": 1}
    alone = [
        *cases([1, 3, 5], [0, 2], options=near),
        Case(8, 5, options={"distance": 4}),
        Case(2 * rng.randrange(6, 10), 5, options=near),
    ]
    turns = [Case(4, 5, seed=s, jitter=20.0, calls=2, options=near, later=({"distance": 2},))
             for s in range(5)]  # fmt: skip
    return [*alone, *moved([2, 4], 40, rng, options=near), *moved([1], 9, rng, options=near)[:3],
            *turns]  # fmt: skip


declare(Exercise(
    "01.1", "exchange",
    inputs=lambda case, rank: (tensor(case, rank), partner(case, rank)),
    expected=swapped,
    core=exchange_core,
    sturdy=exchange_sturdy,
    fits=lambda c: c.length > 0 and c.world % (2 * c.options["distance"]) == 0,
    rules=[no_collectives, receives_at_least(lambda play, r: nbytes(play.given(r)) * sum(
        partner(play.case.call(k), r) != r for k in range(play.case.calls)))],
    diagnoses=[
        Diagnosis("both-receive-first", "Both sides open their hands and nobody gives. Who could "
                  "send first, and how can two ranks that run the same code tell?",
                  every(all_wait_in("recv"))),
        Diagnosis("both-send-first", "Both sides hold out a message and nobody takes it. It would "
                  "work on a network that stores messages; a send may wait for its recv.",
                  every(all_wait_in("send"))),
        Diagnosis("by-parity", "It works for neighbours, and ranks 0 and 2 stand still. Which of "
                  "these two goes first, and how do both of them know?",
                  both(every(found("deadlock")), only_where(between_equals),
                       lambda e: any(p.case.options["distance"] == 1 and p.case.world % 2 == 0
                                     for p in e.passed))),
        Diagnosis("inbox-is-outbox", "The tensor that is to leave is written over. It may be on "
                  "its way still, and it is the caller's: what comes in belongs into another one.",
                  both(some(overwritten), every(lambda p: overwritten(p)
                       or found("mismatch")(p)))),
        Diagnosis("returns-own", "Each rank returns what it came with. Which of the two tensors "
                  "has the answer?", both(some(found("returned")), every(
                      lambda p: p.done and all(is_own(p, r) for r in range(p.case.world))))),
        Diagnosis("one-sided", "One of the two has the other's tensor, and the other one has "
                  "nothing new: both give, and both take.", every(one_sided)),
        Diagnosis("own-partner", "A rank may be its own partner: nobody sends to itself, yet "
                  "there is an answer, a tensor of its own as always.", only_where(lambda p: any(
                      partner(p.case, r) == r for r in range(p.case.world)))),
        STRIDED,
    ],
))  # fmt: skip


# ---- pass_right ------------------------------------------------------------------------------


def from_rank(shift: int) -> Any:
    """Every rank returns the tensor of the rank at this distance."""
    return lambda play, r: play.given((r + shift) % play.case.world)


def passed_right(play: Play, call: int) -> list[Seen]:
    at = play.inputs[call]
    return [Seen(at[r - 1][0], at[r]) for r in range(play.case.world)]


def only_two_talk(play: Play) -> bool:
    """More than two ranks; ranks 0 and 1 talk to one another, and a third one to nobody."""
    if isinstance(play.error, RankFailed):
        return play.case.world > 2 and play.error.rank > 1
    pairs = {(e.rank, e.peer) for e in trace_of(play).events if e.is_send}
    apart = all((a in (0, 1)) == (b in (0, 1)) for a, b in pairs)
    return play.case.world > 2 and {(0, 1), (1, 0)} <= pairs and apart


def along_a_row(play: Play) -> bool:
    """Each rank sends to the next one, and the last one to nobody."""
    pairs = {(e.rank, e.peer) for e in trace_of(play).events if e.is_send}
    return play.done and play.case.world > 1 and (
        pairs == {(r, r + 1) for r in range(play.case.world - 1)})  # fmt: skip


def asks_for_no_rank(play: Play) -> bool:
    """A message was to go to, or to come from, a rank that does not exist."""
    return raised("RuntimeError")(play) and "there is no rank" in str(play.error)


def pass_core(rng: random.Random) -> list[Case]:
    drawn = [Case(w, rng.randrange(4, 300), numbers="random", seed=w) for w in (3, 4, 5)]
    return cases(range(2, 6), [1, 3]) + drawn + [Case(3, 4, numbers="random", seed=1, calls=3)]


declare(Exercise(
    "01.2", "pass_right",
    inputs=lambda case, rank: (tensor(case, rank),),
    expected=passed_right,
    core=pass_core,
    sturdy=lambda rng: [*cases([1, 8], [0, 1, 5]), Case(crowd(rng), 3), *moved([2, 3, 5], 40, rng),
                        *moved([1], 9, rng)[:3]],
    rules=[no_collectives, receives_at_least(lambda play, r: 0 if play.case.world == 1 else
                                             nbytes(play.given(r - 1)) * play.case.calls)],
    diagnoses=[
        Diagnosis("send-first", "Everyone sends and nobody takes: each send waits for its recv, "
                  "all the way round. Who could receive first?", every(all_wait_in("send"))),
        Diagnosis("receive-first", "Everyone waits for a message that nobody has sent yet. Who "
                  "could send first?", every(all_wait_in("recv"))),
        Diagnosis("overwrites-mine", "The tensor that was handed in is the caller's, and it is "
                  "written over: receive into a tensor of its own.", every(overwritten)),
        Diagnosis("passes-left", "Everyone has the tensor of a neighbour, and of the wrong one. "
                  "Which way is right?", returns(from_rank(1))),
        Diagnosis("pairs", "Ranks swap in pairs. That is a ring for two ranks only: with four, "
                  "whom does rank 1 send to?",
                  both(returns(lambda p, r: p.given(r ^ 1),
                               lambda p: p.case.world % 2 == 0 and p.case.calls == 1),
                       every(lambda p: p.case.world > 2))),
        Diagnosis("open-ring", "It is passed along a row: after the last rank comes rank 0 again. "
                  "Whose tensor does rank 0 get?", every(along_a_row)),
        Diagnosis("two-ranks-only", "It is right for two ranks; who is the third one's neighbour?",
                  both(every(only_two_talk), only_where(lambda p: p.case.world > 2))),
        Diagnosis("no-such-rank", "Ranks are counted from 0 to n − 1. Whose neighbour has been "
                  "given a number that nobody has?",
                  every(asks_for_no_rank)),
        Diagnosis("alone", "A rank that is alone is its own neighbour, and nobody sends to "
                  "itself; what it returns is a tensor of its own as always.", only_where(alone)),
        STRIDED,
    ],
))  # fmt: skip


# ---- in_order --------------------------------------------------------------------------------


@dataclass(eq=False)
class Work:
    """What ``in_order`` is given: takes its time, and remembers when it was called."""

    seconds: float
    calls: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self) -> None:
        start = current().now()
        compute(self.seconds)
        self.calls.append((start, current().now()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Work) and len(self.calls) == len(other.calls)

    def __str__(self) -> str:
        times = {0: "never", 1: "once", 2: "twice"}.get(len(self.calls), f"{len(self.calls)} times")
        return f"work, called {times}"


def work(case: Case, rank: int) -> tuple[Work]:
    return (Work(case.random(rank).choice((1, 2, 3, 5)) * case.options.get("unit", 0.004)),)


def spans(play: Play, call: int = 0) -> list[tuple[float, float]]:
    """When each rank worked; empty where one did not, or more than once."""
    if not play.done:
        return []
    calls = [seen.args[0].calls for seen in play.seen[call] if seen.args]
    return [c[0] for c in calls] if all(len(c) == 1 for c in calls) else []


def news(trace: Trace, start: int, time: float) -> dict[int, float]:
    """What rank ``start`` knows at ``time``: when does each rank know it, told by messages?"""
    known = {start: time}
    for message in sorted(trace.messages, key=lambda m: (m.send.issued, m.src, m.send.seq)):
        if message.recv is None or message.recv.completed is None:
            continue
        if message.send.issued >= known.get(message.src, float("inf")):
            known[message.dst] = min(message.recv.completed, known.get(message.dst, float("inf")))
    return known


def taking_turns(play: Play) -> Iterator[Finding]:
    """Rank r + 1 begins only after a message has told it that rank r has ended, in every call."""
    for call in range(play.case.calls):
        times = spans(play, call)
        for rank in range(1, len(times)):
            told = news(trace_of(play), rank - 1, times[rank - 1][1]).get(rank, float("inf"))
            if times[rank][0] < told:
                before = times[rank][0] < times[rank - 1][1]
                text = f"rank {rank} begins work() " + ("again " if call else "") + (
                    f"before rank {rank - 1} has ended" if before else
                    f"after rank {rank - 1} has ended, and no message had told it so")  # fmt: skip
                yield Finding("order", text, rank)


def sleeps(play: Play) -> bool:
    """Time passes before work() begins, and nothing was said that could take time."""
    return bool(spans(play)) and not trace_of(play).events and any(
        start > 0 for start, _ in spans(play))  # fmt: skip


def all_at_once(play: Play) -> bool:
    return bool(spans(play)) and not trace_of(play).events and all(
        start == 0 for start, _ in spans(play))  # fmt: skip


def too_early(play: Play) -> bool:
    """Some rank tells the next one, and does so before its own work() has ended."""
    times = spans(play)
    return any(e.peer == r + 1 and e.issued <= times[r][0] < times[r][1]
               for r in range(len(times)) for e in sends(play, r))  # fmt: skip


def overlap(play: Play) -> bool:
    """Two ranks that one rank has told work at once, though each that sends has ended."""
    times = spans(play)
    late = all(e.issued >= times[r][1] for r in range(len(times)) for e in sends(play, r))
    return late and any(
        tellers(play, a, times[a][0]) & tellers(play, b, times[b][0])
        and times[a][0] < times[b][1] and times[b][0] < times[a][1]
        for a, b in itertools.combinations(range(len(times)), 2))  # fmt: skip


def tellers(play: Play, rank: int, time: float) -> set[int]:
    """Whose messages have reached this rank by then."""
    came = [(m.src, m.recv.completed) for m in trace_of(play).messages if m.dst == rank and m.recv]
    return {src for src, end in came if end is not None and end <= time}


def stuck_last(play: Play) -> bool:
    """Only the last rank is stuck, in a send; or it was refused one."""
    last, error = play.case.world - 1, play.error
    if isinstance(error, Deadlock):
        return {w.rank for w in error.waits} == {last} and "send" in error.waits[0].call
    return isinstance(error, RankFailed) and error.rank == last and error.kind in (
        "ValueError", "RuntimeError", "IndexError") and len(sends(play, last)) <= 1  # fmt: skip


def everyone_waits(play: Play) -> bool:
    return isinstance(play.error, Deadlock) and all_wait_in("recv")(play) and (
        len(play.error.waits) == play.case.world)  # fmt: skip


def turns_core(rng: random.Random) -> list[Case]:
    slow = [Case(w, seed=s, options={"unit": 1.5}) for w in (3, 5) for s in (1, 2)]
    return [Case(w, seed=rng.randrange(99)) for w in range(2, 6) for _ in range(2)] + slow


def fewer_ranks(case: Case) -> Iterator[Case]:
    for world in range(1, case.world + 1):
        for seed in (0, 1, 2, case.seed):
            yield Case(world, seed=seed, options=case.options)


def ends_in_order(e: Evidence) -> bool:
    """Nothing but the order is wrong."""
    return all(p.kinds() == {"order"} for p in e.failed)


declare(Exercise(
    "01.3", "in_order",
    inputs=work,
    expected=lambda play, call: [Seen(None, (Work(0, [(0, 0)]),)) for _ in play.inputs[0]],
    core=turns_core,
    sturdy=lambda rng: [Case(1), Case(8), Case(crowd(rng), seed=rng.randrange(99)),
                        Case(5, jitter=3.0), Case(6, jitter=3.0), Case(3, calls=2)],
    fits=lambda case: case.world > 1,
    told=lambda case: False,
    smaller=fewer_ranks,
    length_is="",
    rules=[no_collectives, taking_turns],
    diagnoses=[
        Diagnosis("barrier", "A collective is a meeting of everyone; this is a word from one rank "
                  "to the next, and send and recv are enough for it.", some(found("collective"))),
        Diagnosis("sleeps", "Time is not an order: the one before may take longer than anybody "
                  "waits. What would tell the next rank that it is its turn?",
                  both(some(sleeps), every(found("order")))),
        Diagnosis("all-at-once", "Every rank begins at once. Who tells the next one that it is "
                  "its turn?", both(some(all_at_once), every(found("order")))),
        Diagnosis("token-too-early", "The word is passed on before the work is done: the next "
                  "rank begins while this one is busy.",
                  both(every(too_early), ends_in_order)),
        Diagnosis("rank-0-waits", "Everyone waits for a word from somebody. Who begins?",
                  every(everyone_waits)),
        Diagnosis("last-sends-on", "After the last rank there is nobody to tell.",
                  every(stuck_last)),
        Diagnosis("two-at-once", "Two ranks work at the same time, although each one that sends "
                  "has ended: how many are told at once?",
                  both(ends_in_order, every(lambda p: overlap(p)))),
    ],
))  # fmt: skip
