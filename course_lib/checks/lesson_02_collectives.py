"""Lesson 02: broadcast, gather, reduce, all_gather, reduce_scatter; send and receive alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from course_lib.checks.cases import (
    ALL_HOLD,
    HELD,
    LONG,
    SHAPES,
    SPREAD,
    Case,
    cases,
    crowd,
    late_calls,
    moved,
    nbytes,
    smaller,
    tensor,
)
from course_lib.checks.compare import same
from course_lib.checks.diagnoses import (
    IN_A_COPY,
    OfPlay,
    When,
    all_wait_in,
    alone,
    both,
    every,
    found,
    only_spread,
    only_where,
    some,
)
from course_lib.checks.exercise import (
    Diagnosis,
    Evidence,
    Exercise,
    Play,
    Seen,
    declare,
)
from course_lib.checks.rules import (
    bytes_at_most,
    bytes_in_total_at_least,
    hears_of,
    no_collectives,
    peers,
    receives_at_least,
    sends,
    trace_of,
)
from course_lib.errors import RankFailed

SHAPED = ("matrix", "transposed", "scalar", "mixed")  # more or fewer dimensions than one


# ---- roots -----------------------------------------------------------------------------------


def times_root(play: Play, rank: int) -> int:
    """In how many of the calls this rank is the root."""
    return sum(root(play.case.call(number)) == rank for number in range(play.case.calls))


def root(case: Case) -> int:
    """The rank that ``src`` or ``dst`` names."""
    return case.options["src" if "src" in case.options else "dst"]


def rooted(word: str, world: int, length: int, **rest: Any) -> list[Case]:
    """One case for the first root, the last, and two between."""
    more = rest.pop("options", {})
    roots = sorted({0, 1 % world, world // 2, world - 1})
    return [Case(world, length, options={word: r, **more}, **rest) for r in roots]


def other_roots(case: Case) -> Iterator[Case]:
    """Smaller cases, each with every rank as its root."""
    word = "src" if "src" in case.options else "dst"
    for small in smaller(case):
        if small.length in (0, 1, 2, case.length):
            for r in range(small.world):
                yield replace(small, options={**case.options, word: r})


def rooted_core(word: str) -> Callable[[random.Random], list[Case]]:
    def core(rng: random.Random) -> list[Case]:
        plain = [c for w in range(2, 6) for n in (1, 3) for c in rooted(word, w, n)]
        drawn = [Case(w, rng.randrange(4, 300), numbers="random", seed=w,
                      options={word: rng.randrange(w)}) for w in (3, 4, 5)]  # fmt: skip
        late = [
            Case(w, 2, jitter=3.0, options={word: r}) for w, r in ((4, 0), (5, 0), (5, 2), (5, 4))
        ]
        again = [
            Case(3, 4, numbers="random", seed=1, calls=3, options={word: 1}),
            *late_calls(3, 2, options={word: 0}),
            *late_calls(4, 2, options={word: 2}, later=({word: 0},) * 2),
        ]
        return [*plain, *drawn, *late, *again]

    return core


def rooted_sturdy(word: str) -> Callable[[random.Random], list[Case]]:
    def sturdy(rng: random.Random) -> list[Case]:
        alone = [Case(1, n, options={word: 0}) for n in (0, 1, 5)]
        many = [Case(w, n, options={word: r}) for w, n, r in (
            (8, 5, 0), (8, 1, 3), (8, 0, 7), (6, 4, 5), (7, 2, 2), (crowd(rng), 3, 1))]  # fmt: skip
        kinds = moved([2, 3, 5], 40, rng, options={word: 1})
        held = [Case(3, 4, options={word: 0, HELD: what}) for what in ("zeros", "NaN")]
        return [*alone, *many, *kinds, Case(1, 6, layout="strided", options={word: 0}), *held]

    return sturdy


# ---- what went wrong, for all exercises ------------------------------------------------------


def exactly_where(test: OfPlay) -> When:
    """It fails in all of these cases and in no other; there are both."""

    def when(e: Evidence) -> bool:
        wrong = [any(p is f for f in e.failed) for p in e.plays]
        here = [test(p) for p in e.plays]
        return wrong == here and any(here) and not all(here)

    return when


def to_itself(play: Play) -> bool:
    """A rank tried to send to itself or to receive from itself, and was refused."""
    said = str(play.error).partition("\n")[0]  # torch's words for send, and ours for the others
    words = ("same as the rank of the current process", "itself")
    return isinstance(play.error, RankFailed) and any(w in said for w in words)


def note(words: str) -> OfPlay:
    """The play has a finding about memory that says so."""
    return lambda p: any(f.kind == "memory" and words in f.text for f in p.findings)


def received(play: Play, rank: int) -> int:
    """Bytes that came to this rank in messages."""
    return sum(m.nbytes for m in trace_of(play).messages if m.dst == rank and m.recv)


def everybody(play: Play) -> list[Tensor]:
    """Of all ranks what they gave, in rank order."""
    return [play.given(r) for r in range(play.case.world)]


ALONE = Diagnosis(
    "alone", "A rank that is alone has nobody to talk to, and a result all the same.",
    both(only_where(alone), some(lambda p: p.kinds() != {"memory"})),
)  # fmt: skip
ITSELF = Diagnosis(
    "talks-to-itself", "A rank sends to itself or receives from itself, and there is no such "
    "connection. What does it have already?", every(to_itself),
)  # fmt: skip
SEND_FIRST = Diagnosis(
    "send-first", "Everyone sends and nobody takes: each send waits for its recv. Who could "
    "receive first, or which call starts a message without waiting for it?",
    every(all_wait_in("send")),
)  # fmt: skip
ONE_BUFFER = Diagnosis(
    "one-buffer", "The list holds one tensor more than once: what arrives last shows in each of "
    "those places. How many inboxes do so many messages need?",
    every(note("with one another")),
)  # fmt: skip
OWN_IS_ARGUMENT = Diagnosis(
    "own-is-argument", "The rank's own entry is the caller's tensor itself: whoever writes into "
    "one of the two changes the other.",
    every(lambda p: p.kinds() == {"memory"} and note("with an argument")(p)),
)  # fmt: skip
KINDS = [
    Diagnosis("strided", "Only tensors whose elements do not lie side by side go wrong; send and "
              "recv want them side by side.", only_spread),
    Diagnosis("shape", "With one dimension it goes well, and not with this shape: what does the "
              "function take for granted about it?",
              only_where(lambda p: p.case.layout in SHAPED)),
    Diagnosis("dtype", "With float32 it goes well, and not with this dtype: does what is made "
              "inside have the tensor's dtype, and what is called work with it?",
              only_where(lambda p: p.case.call(p.case.calls - 1).dtype != "float32")),
]  # fmt: skip


def root_fixed(word: str) -> Diagnosis:
    return Diagnosis(
        "root-fixed", f"It is right where {word} is 0, and nowhere else. Which lines name a rank "
        f"and do not mean {word}?", exactly_where(lambda p: root(p.case) != 0),
    )  # fmt: skip


# ---- my_broadcast ----------------------------------------------------------------------------


def told(play: Play, call: int) -> list[Seen]:
    """Every rank has what src had."""
    src = root(play.case.call(call))
    return [Seen(None, (play.inputs[call][src][0], src)) for _ in play.inputs[call]]


def listeners(play: Play) -> list[int]:
    return [r for r in range(play.case.world) if r != root(play.case)]


def unwritten(play: Play) -> bool:
    """Every rank has received a whole tensor, its own one is as it was, and that is wrong."""
    return play.done and "left" in play.kinds() and all(
        received(play, r) >= nbytes(play.given(r)) and same(play.left(r), play.given(r))
        for r in listeners(play))  # fmt: skip


def makeup(play: Play, value: Tensor) -> tuple[int, ...] | None:
    """For numbers that are digits: how often each rank's tensor is in this sum, the same in every
    element; None where that cannot be read."""
    case, counts = play.case, set()
    for i, v in enumerate(value.flatten().tolist()):
        times, rest = divmod(v, i % 9 + 1)
        if rest or times < 0 or times >= 10**case.world:
            return None
        counts.add(tuple(int(times) // 10**r % 10 for r in range(case.world)))
    return counts.pop() if len(counts) == 1 else None


def readable(play: Play) -> bool:
    """A sum of these numbers tells who is in it."""
    return play.case.numbers == "digits" and play.case.dtype == "float32" and play.case.length > 0


def added(play: Play) -> bool:
    """Every rank but src has its own tensor and that of src in a sum, perhaps with others."""
    if not play.done or not same(play.left(src := root(play.case)), play.given(src)):
        return False
    found = [(r, makeup(play, play.left(r))) for r in listeners(play)]
    return all(who is not None and who[r] > 0 and who[src] > 0 for r, who in found)


def upward(play: Play) -> bool:
    """Every message goes to the next higher rank."""
    return all(peers(play, r) <= {r + 1} for r in range(play.case.world))


def chain_from_0(e: Evidence) -> bool:
    long = [p for p in e.plays if p.case.world > 2]
    return any(sends(p, r) for p in long for r in range(p.case.world)) and all(map(upward, long))


declare(Exercise(
    "02.1", "my_broadcast",
    inputs=lambda case, rank: (tensor(case, rank), root(case)),
    expected=told,
    core=rooted_core("src"),
    sturdy=rooted_sturdy("src"),
    smaller=other_roots,
    rules=[no_collectives,
           hears_of(lambda p, r: [root(p.case)] if p.case.length else []),
           receives_at_least(lambda p, r: nbytes(p.given(r)) *
                             (p.case.calls - times_root(p, r)))],
    diagnoses=[
        ALONE,
        Diagnosis("chain-from-0", "Messages run from each rank to the next, and nobody sends to "
                  "rank 0. Who tells it when src is another rank?",
                  both(chain_from_0, exactly_where(lambda p: root(p.case) != 0))),
        root_fixed("src"), ITSELF,
        Diagnosis("powers-of-two", "It goes wrong where the number of ranks is no power of two, "
                  "and only there. Play three ranks by hand: who is whose partner, round by "
                  "round?", exactly_where(lambda p: p.case.world & (p.case.world - 1) != 0)),
        Diagnosis("copy-not-written-back", IN_A_COPY,
                  both(only_where(lambda p: p.case.layout in SPREAD),
                       every(lambda p: p.case.layout == "mixed" or unwritten(p)))),
        Diagnosis("rebinds", "The message arrives, and the caller's tensor is as it was. A name "
                  "can be given another tensor; the caller still holds the first one.",
                  every(unwritten)),
        Diagnosis("adds", "What arrives is added to what the rank had; src's tensor is to take "
                  "its place.", both(some(readable), every(
                      lambda p: added(p) if readable(p) else p.kinds() == {"left"}))),
        *KINDS,
    ],
))  # fmt: skip


# ---- my_gather -------------------------------------------------------------------------------


def collected(play: Play, call: int) -> list[Seen]:
    """The list of all tensors on dst, None elsewhere; nobody's own tensor changes."""
    at, dst = play.inputs[call], root(play.case.call(call))
    everything = [args[0] for args in at]
    return [Seen(everything if r == dst else None, args) for r, args in enumerate(at)]


def entries(play: Play, rank: int) -> list[Tensor] | None:
    """The tensors that a rank returned in a list; None where it is no such list."""
    got = play.got(rank).returned if play.done else None
    if not isinstance(got, list) or not all(isinstance(x, Tensor) for x in got):
        return None
    return got


def is_whole(play: Play, rank: int) -> bool:
    return same(play.got(rank).returned, everybody(play))


def lists_everywhere(play: Play) -> bool:
    return play.done and play.case.world > 1 and is_whole(play, root(play.case)) and all(
        isinstance(play.got(r).returned, list) for r in listeners(play))  # fmt: skip


def without_own(play: Play, rank: int) -> bool:
    """Everybody's tensor is there but the rank's own one."""
    got = play.got(rank).returned if play.done else None
    want = everybody(play)
    if not isinstance(got, list) or same(got, want):
        return False
    others = want[:rank] + want[rank + 1 :]
    gap = got[:rank] + got[rank + 1 :] if len(got) == len(want) else got
    return bool(others) and same(gap, others)


def shuffled(play: Play, rank: int) -> list[int] | None:
    """Whose tensors the list holds, in its order; None unless each is there once."""
    got, want = entries(play, rank), everybody(play)
    if (
        got is None
        or len(got) != len(want)
        or any(same(a, b) for i, a in enumerate(want) for b in want[:i])
    ):
        return None
    order = [next((r for r, w in enumerate(want) if same(g, w)), -1) for g in got]
    return order if sorted(order) == list(range(len(want))) else None


def out_of_order(play: Play, ranks: list[int]) -> bool:
    """Each of these ranks has everybody's tensor; on one of them at least in another order."""
    orders = [shuffled(play, r) for r in ranks]
    return None not in orders and any(o != sorted(o) for o in orders if o is not None)


def as_they_came(e: Evidence) -> bool:
    """The others' tensors stand in the order in which dst received them, whatever it was."""
    ascending = True
    for p in (p for p in e.plays if p.case.calls == 1):
        if not p.done:
            return False
        dst = root(p.case)
        if p.case.world < 3 or p.case.calls > 1 or (order := shuffled(p, dst)) is None:
            continue
        came = [x.peer for x in trace_of(p).of(dst) if x.is_recv]
        others = [r for r in order if r != dst]
        if others != came:
            return False
        ascending = ascending and others == sorted(others)
    return not ascending


NOT_IN_ORDER = "Everything is there, and not in rank order: rank r's tensor belongs at place r."

declare(Exercise(
    "02.2", "my_gather",
    inputs=lambda case, rank: (tensor(case, rank), root(case)),
    expected=collected,
    core=rooted_core("dst"),
    sturdy=rooted_sturdy("dst"),
    smaller=other_roots,
    rules=[no_collectives,
           hears_of(lambda p, r: range(p.case.world) if p.case.length and r == root(p.case)
                    else []),
           receives_at_least(lambda p, r: (p.case.world - 1) * nbytes(p.given(r)) *
                             times_root(p, r))],
    diagnoses=[
        ALONE, ONE_BUFFER,
        Diagnosis("list-everywhere", "Ranks other than dst return a list, too. What does the stub "
                  "promise there?", every(lists_everywhere)),
        Diagnosis("own-missing", "The tensors of all others are there, and dst's own is not. It "
                  "needs no message to get into the list.",
                  both(every(lambda p: without_own(p, root(p.case))),
                       some(lambda p: p.case.calls == 1))),
        Diagnosis("arrival-order", "The tensors stand in the order in which their messages came, "
                  "and who comes first is chance. How can dst tell whose message it is?",
                  both(as_they_came, every(lambda p: p.case.calls > 1 or
                                           out_of_order(p, [root(p.case)])))),
        Diagnosis("not-in-rank-order", NOT_IN_ORDER,
                  every(lambda p: out_of_order(p, [root(p.case)]))),
        OWN_IS_ARGUMENT, root_fixed("dst"), ITSELF, *KINDS,
    ],
))  # fmt: skip


# ---- my_reduce -------------------------------------------------------------------------------

REDUCERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda rows: rows.sum(0),
    "prod": lambda rows: rows.prod(0),
    "max": lambda rows: rows.amax(0),
    "min": lambda rows: rows.amin(0),
}
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)  # all of them multiplied are still exact in float32
REDUCIBLE = ("float64", "float16", "bfloat16", "int32", "int64")


def operand(case: Case, rank: int) -> Tensor:
    """One rank's tensor, of numbers that give away who is missing, or who is there twice."""
    op, filled = case.options["op"], tensor(case, rank)
    if op == "sum" or case.dtype == "uint8" or ALL_HOLD in case.options:
        return filled
    numbers = [factor(case, rank, i) if op == "prod" else contender(case, rank, i)
               for i in range(case.length)]  # fmt: skip
    with torch.no_grad():
        filled.copy_(torch.tensor(numbers, dtype=filled.dtype).reshape(filled.shape))
    return filled


def factor(case: Case, rank: int, i: int) -> int:
    """Another prime on every rank; for few bits of mantissa a power of two."""
    if case.dtype in ("float16", "bfloat16"):
        return (1, 2, -1, -2)[(rank + i) % 4]
    return PRIMES[(rank + i) % 8]


def contender(case: Case, rank: int, i: int) -> int:
    """Another number on every rank; all of one sign, so that a 0 among them would win."""
    below = (i % 2 == 0) == (case.options["op"] == "max")
    return ((rank + i) % case.world + 1) * (-1 if below else 1)


def combine(op: str, rows: list[Tensor]) -> Tensor:
    """The reduction in one process, exact, in the dtype of the rows."""
    wide = torch.int64 if not rows[0].is_floating_point() else torch.float64
    return REDUCERS[op](torch.stack([row.to(wide) for row in rows])).to(rows[0].dtype)


def reduced(play: Play, call: int) -> list[Seen]:
    at, op = play.inputs[call], play.case.options["op"]
    result = combine(op, [args[0] for args in at])
    return [Seen(None, (result, *args[1:]) if r == root(play.case) else args)
            for r, args in enumerate(at)]  # fmt: skip


def is_reduced(play: Play) -> bool:
    """dst has the result."""
    return play.done and same(play.left(root(play.case)), combine(op_of(play), everybody(play)))


def at_dst(formula: Callable[[Play, list[Tensor]], list[Tensor]]) -> OfPlay:
    """What dst has is wrong, and one of these, made of everybody's tensors."""
    return lambda p: p.done and not is_reduced(p) and any(
        same(p.left(root(p.case)), guess) for guess in formula(p, everybody(p)))  # fmt: skip


def op_of(play: Play) -> str:
    return play.case.options["op"]


def others_changed(play: Play) -> bool:
    """dst has the result, and somebody else has another tensor than before."""
    return is_reduced(play) and any(
        not same(play.left(r), play.given(r)) for r in listeners(play))  # fmt: skip


def divided(play: Play) -> bool:
    dst = root(play.case)
    return play.done and not is_reduced(play) and op_of(play) == "sum" and same(
        play.left(dst) * play.case.world, combine("sum", everybody(play)), 1e-2)  # fmt: skip


def other_op(play: Play, rows: list[Tensor]) -> list[Tensor]:
    return [combine(op, rows) for op in REDUCERS if op != op_of(play)]


def one_left_out(play: Play, rows: list[Tensor]) -> list[Tensor]:
    return [combine(op_of(play), rows[:r] + rows[r + 1 :]) for r in range(len(rows) if rows[1:]
                                                                          else 0)]  # fmt: skip


def reduce_core(rng: random.Random) -> list[Case]:
    sums = [c for w in range(2, 6) for c in rooted("dst", w, 3, options={"op": "sum"})]
    sizes = ((2, 1, 0), (2, 3, 1), (3, 2, 2), (4, 4, 0), (4, 3, 1), (5, 6, 3))
    more = [Case(w, n, options={"dst": r, "op": op}) for op in ("prod", "max", "min")
            for w, n, r in sizes]  # fmt: skip
    pairs = ((3, "sum"), (4, "prod"), (4, "max"), (5, "min"), (5, "sum"))
    drawn = [Case(w, rng.randrange(4, 300), numbers="random", seed=w,
                  options={"dst": rng.randrange(w), "op": op}) for w, op in pairs]  # fmt: skip
    late = [Case(4, 2, jitter=3.0, options={"dst": 3, "op": op}) for op in ("sum", "max")]
    to_1 = {"dst": 1, "op": "sum"}
    again = [
        Case(3, 4, numbers="random", seed=1, calls=3, options=to_1),
        *late_calls(3, 2, options=to_1),
    ]
    short = rooted("dst", 2, 1, options={"op": "sum"})
    return [*short, *sums, *more, *drawn, *late, *again]


def reduce_sturdy(rng: random.Random) -> list[Case]:
    ops = list(REDUCERS)
    alone = [Case(1, n, options={"dst": 0, "op": op}) for n in (0, 3) for op in ops]
    many = [Case(w, n, options={"dst": r, "op": op}) for w, n, r, op in (
        (crowd(rng), 5, 3, "sum"), (8, 4, 7, "prod"), (7, 3, 0, "max"), (6, 3, 5, "min"),
        (5, 0, 2, "sum"), (4, 0, 1, "max"))]  # fmt: skip
    dtypes = [Case(w, n, d, numbers="random", seed=n, options={"dst": 1, "op": op})
              for d, w, n in zip(REDUCIBLE, (2, 3, 5, 4, 3), (7, 5, 9, 6, 8), strict=True)
              for op in ops]  # fmt: skip
    layouts = [Case(3, 6, layout=layout, options={"dst": 2, "op": rng.choice(ops)})
               for layout in SHAPES]  # fmt: skip
    scalar = Case(4, 1, layout="scalar", options={"dst": 1, "op": "sum"})
    large = Case(3, 4, "int64", numbers="large", options={"dst": 1, "op": "sum"})
    unsigned = [Case(3, 40, "uint8", numbers="random", options={"dst": 1, "op": op})
                for op in ("max", "min")]  # fmt: skip
    held = [Case(3, 4, options={"dst": dst, "op": "sum", HELD: what})
            for dst, what in ((0, "zeros"), (1, "zeros"), (0, "infinities"), (1, "infinities"),
                              (2, "infinities"))]  # fmt: skip
    held += [Case(2, 2, options={"dst": 1, "op": op, ALL_HOLD: what}) for op, what in (
        ("max", "infinities below zero"), ("min", "infinities"))]  # fmt: skip
    long = Case(2, rng.randrange(*LONG), options={"dst": 1, "op": "max"})
    return [*alone, *many, *dtypes, *layouts, scalar, large, *unsigned, *held, long]


declare(Exercise(
    "02.3", "my_reduce",
    inputs=lambda case, rank: (operand(case, rank), root(case), case.options["op"]),
    expected=reduced,
    core=reduce_core,
    sturdy=reduce_sturdy,
    smaller=other_roots,
    rules=[no_collectives,
           hears_of(lambda p, r: range(p.case.world) if p.case.length and r == root(p.case)
                    else [])],
    diagnoses=[
        ALONE,
        Diagnosis("others-changed", "dst has the result, and somebody else's tensor is not what "
                  "it was. Where could a rank add up, if not in the caller's tensor?",
                  every(others_changed)),
        Diagnosis("divides", "This is the mean; the sum is asked for.", every(divided)),
        Diagnosis("root-twice", "dst's own tensor is in the result twice.",
                  every(at_dst(lambda p, rows: [combine(op_of(p), [
                      *rows, p.given(root(p.case))])]))),
        Diagnosis("starts-from-0", "It is as if one more rank had taken part, with zeros. What "
                  "does a 0 do to a product, or among negative numbers to the largest?",
                  every(at_dst(lambda p, rows: [combine(op_of(p), [
                      *rows, torch.zeros_like(rows[0])])]))),
        Diagnosis("copy-not-written-back", IN_A_COPY,
                  both(only_where(lambda p: p.case.layout in SPREAD), every(
                       lambda p: p.done and (p.case.layout == "mixed" or same(
                           p.left(root(p.case)), p.given(root(p.case))))))),
        Diagnosis("other-op", "The result is that of another operation than the one that `op` "
                  "names.", every(at_dst(other_op))),
        Diagnosis("one-lost", "The result lacks the numbers of one rank. Who was there first, and "
                  "what became of it?", every(at_dst(one_left_out))),
        root_fixed("dst"), ITSELF,
        *KINDS,
    ],
))  # fmt: skip


# ---- my_all_gather ---------------------------------------------------------------------------


def shared(play: Play, call: int) -> list[Seen]:
    """Everybody's tensor on every rank."""
    everything = [args[0] for args in play.inputs[call]]
    return [Seen(everything, args) for args in play.inputs[call]]


def all_ranks(test: Callable[[Play, int], bool]) -> OfPlay:
    return lambda p: p.done and all(test(p, r) for r in range(p.case.world))


def root_keeps(play: Play) -> bool:
    """One rank has the list, and nobody else has been sent anything."""
    if not play.done:
        return False
    whole = [r for r in range(play.case.world) if is_whole(play, r)]
    return len(whole) == 1 < play.case.world and not any(
        received(play, r) for r in range(play.case.world) if r not in whole)  # fmt: skip


def everywhere_core(rng: random.Random) -> list[Case]:
    drawn = [Case(w, rng.randrange(4, 300), numbers="random", seed=w) for w in (3, 4, 5)]
    late = [Case(w, 2, jitter=3.0) for w in (4, 5, 5)]
    again = [
        Case(3, 4, numbers="random", seed=1, calls=3),
        *late_calls(3, 2),
    ]
    return [*cases(range(2, 6), [1, 3]), *drawn, *late, *again]


declare(Exercise(
    "02.4", "my_all_gather",
    inputs=lambda case, rank: (tensor(case, rank),),
    expected=shared,
    core=everywhere_core,
    sturdy=lambda rng: [*cases([1, 8], [0, 1, 5]), *cases([6, 7, crowd(rng)], [2]),
                        *moved([2, 3, 5], 40, rng), Case(1, 6, layout="strided")],
    rules=[no_collectives,
           hears_of(lambda p, r: range(p.case.world) if p.case.length else []),
           receives_at_least(lambda p, r: (p.case.world - 1) * nbytes(p.given(r))
                             * p.case.calls)],
    diagnoses=[
        ALONE, ITSELF, SEND_FIRST, ONE_BUFFER,
        Diagnosis("root-keeps-it", "One rank has everybody's tensor, and nobody tells the others.",
                  every(root_keeps)),
        Diagnosis("own-missing", "The tensors of all others are there, and the rank's own is not. "
                  "It needs no message to get into the list.", every(all_ranks(without_own))),
        Diagnosis("not-in-rank-order", NOT_IN_ORDER,
                  every(lambda p: out_of_order(p, list(range(p.case.world))))),
        OWN_IS_ARGUMENT, *KINDS,
    ],
))  # fmt: skip


# ---- my_reduce_scatter -----------------------------------------------------------------------


def in_rows(case: Case, rank: int) -> tuple[Tensor]:
    """A tensor whose first dimension is a multiple of the number of ranks."""
    if case.layout != "matrix":
        return (tensor(case, rank),)
    return (tensor(replace(case, layout="contiguous"), rank).reshape(case.length // 2, 2),)


def block(whole: Tensor, index: int, world: int) -> Tensor:
    return whole.tensor_split(world)[index]


def total(play: Play) -> Tensor:
    return combine("sum", everybody(play))


def scattered(play: Play, call: int) -> list[Seen]:
    """Of the sum in one process, every rank's block."""
    at, world = play.inputs[call], play.case.world
    whole = combine("sum", [args[0] for args in at])
    return [Seen(block(whole, r, world), args) for r, args in enumerate(at)]


def block_bytes(play: Play) -> int:
    return nbytes(play.given(0)) // play.case.world


def result_is(formula: Callable[[Play, int], list[Tensor]]) -> OfPlay:
    """Every rank returns one of these, and for some rank that is wrong."""
    every_rank = all_ranks(lambda p, r: any(same(p.got(r).returned, x) for x in formula(p, r)))
    return lambda p: every_rank(p) and "returned" in p.kinds()


def some_block(play: Play, _: int) -> list[Tensor]:
    return list(total(play).tensor_split(play.case.world))


def damages(play: Play) -> bool:
    """Every rank's result is right, and the argument is not what it was."""
    return play.done and "argument changed" in play.kinds() and "returned" not in play.kinds()


def over_budget(test: OfPlay) -> When:
    """The budget fails, and every play of more than three ranks with something to send is such."""

    def when(e: Evidence) -> bool:
        large = [p for p in e.plays if p.case.world > 3 and p.case.length]
        return e.level == "budget" and bool(large) and all(map(test, large))

    return when


def whole_to_all(play: Play) -> bool:
    """Everyone sends everyone a message of the whole tensor."""
    return all(len(peers(play, r)) == play.case.world - 1 for r in range(play.case.world)) and all(
        m.nbytes >= nbytes(play.given(m.src)) for m in trace_of(play).messages)  # fmt: skip


def through_one(play: Play) -> bool:
    """One rank is an end of every message, and everybody sends it the whole tensor."""
    others = [[r for r in range(play.case.world) if r != one] for one in range(play.case.world)]
    return any(
        all(one in (m.src, m.dst) for m in trace_of(play).messages)
        and all(trace_of(play).bytes_sent(r) >= nbytes(play.given(r)) for r in rest)
        for one, rest in enumerate(others))  # fmt: skip


def block_core(rng: random.Random) -> list[Case]:
    plain = [Case(w, w * k) for w in range(2, 6) for k in (1, 2)]
    drawn = [Case(w, w * rng.randrange(3, 60), numbers="random", seed=w) for w in (2, 3, 4, 5)]
    late = [Case(w, 2 * w, jitter=3.0) for w in (3, 4, 5)]
    again = [
        Case(3, 6, numbers="random", seed=9, calls=3),
        *late_calls(3, 6),
    ]
    return [*plain, *drawn, *late, *again]


def block_sturdy(rng: random.Random) -> list[Case]:
    sizes = [Case(w, w * k) for w, k in (
        (crowd(rng), 2), (1, 0), (1, 1), (1, 5), (8, 0), (8, 1), (8, 3), (6, 2), (7, 2), (4, 0),
        (4, rng.randrange(9, 40)))]  # fmt: skip
    dtypes = [Case(w, 2 * w, d, numbers="random", seed=w)
              for d, w in zip(REDUCIBLE, (2, 3, 5, 4, 3), strict=True)]  # fmt: skip
    layouts = [Case(w, 4 * w, layout=layout) for w in (2, 3) for layout in SHAPES]
    held = [Case(3, 6, options={HELD: what}) for what in ("zeros", "infinities")]
    large = [Case(3, 6, d, numbers="large") for d in ("float64", "int32", "int64")]
    return [*sizes, *dtypes, *layouts, Case(1, 4, layout="strided"), *held, *large,
            Case(2, 2 * rng.randrange(*LONG))]  # fmt: skip


def fewer_blocks(case: Case) -> Iterator[Case]:
    """Smaller worlds with blocks of no, one and two elements."""
    rows = 2 if case.layout in ("transposed", "matrix") else 1
    plain = replace(case, dtype="float32", layout="contiguous", calls=1)
    for world in range(1, case.world + 1):
        for size in (0, 1, 2):
            for kind in dict.fromkeys((plain.layout, case.layout)):
                same_kind = case if kind == case.layout else plain
                yield replace(same_kind, world=world, length=size * world * rows, seed=0,
                              numbers="digits", layout=kind)  # fmt: skip


declare(Exercise(
    "02.5", "my_reduce_scatter",
    inputs=in_rows,
    expected=scattered,
    core=block_core,
    sturdy=block_sturdy,
    smaller=fewer_blocks,
    rules=[no_collectives,
           hears_of(lambda p, r: range(p.case.world) if p.case.length else []),
           receives_at_least(lambda p, r: (p.case.world > 1) * block_bytes(p) * p.case.calls)],
    budget=[bytes_at_most(lambda p: (p.case.world - 1) * block_bytes(p)),
            bytes_in_total_at_least(lambda p: (p.case.world - 1) * nbytes(p.given(0)))],
    diagnoses=[
        ALONE, ITSELF, SEND_FIRST,
        Diagnosis("input-block", "Each rank returns a part of its own tensor, to which nothing has "
                  "been added.", every(result_is(
                      lambda p, r: [block(p.given(r), r, p.case.world)]))),
        Diagnosis("divides", "This is the mean; the sum is asked for.", every(result_is(
            lambda p, r: [block(total(p), r, p.case.world) / p.case.world]))),
        Diagnosis("whole-sum", "The whole sum comes back; a rank keeps one block of it.",
                  every(result_is(lambda p, r: [total(p)]))),
        Diagnosis("wrong-block", "Each rank returns a finished block of the sum, and not the one "
                  "that has its own number.", every(result_is(some_block))),
        Diagnosis("damages-input", "The results are right, and the caller's tensor is not what it "
                  "was: the adding was done in it.", every(damages)),
        *KINDS,
        Diagnosis("everything-to-everyone", "Everyone sends everyone the whole tensor. What does "
                  "the rank that gets it do with all blocks but one?",
                  over_budget(whole_to_all)),
        Diagnosis("root-does-it-all", "One rank takes everybody's whole tensor, adds up alone and "
                  "hands out the blocks, while the others wait. Whose block could each of them add "
                  "up?", over_budget(through_one)),
        Diagnosis("too-many-bytes", "Somebody sends more than is needed: compare all that "
                  "leaves a rank with the blocks that the others are to have of it.",
                  lambda e: e.level == "budget" and every(found("bytes"))(e)),
    ],
))  # fmt: skip
