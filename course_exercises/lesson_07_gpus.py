"""Lesson 07: time an all_reduce, average while computing, swap edges, find who is missing.

Times are those of the modelled GPU, which has the network that ``simulate`` has by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from statistics import mode
from typing import Any

import torch
from torch import Tensor

from course_lib.beside.seen import Seen
from course_lib.checks import rules
from course_lib.checks.cases import SLOW, Case, cases, crowd, tensor
from course_lib.checks.diagnose import found, says
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.rules import trace_of, without_a_word
from course_lib.errors import Deadlock
from course_lib.simulated import Network
from course_lib.simulated.costs import textbook_seconds

LAUNCH = 5e-6  # seconds of the host for each call
Layers = list[tuple[float, Tensor]]


USUAL = Network()


def seconds(n: int, x: Tensor, network: Network = USUAL) -> float:
    """What one all_reduce of this tensor takes on a modelled network."""
    return textbook_seconds("all_reduce", n, x.nbytes, network.latency, 1 / network.bandwidth)


# ---- 07.1 all_reduce_seconds ---------------------------------------------------------------------

BUSY = 4e-3  # seconds of work that rank 0's GPU has before the call; rank r has r + 1 times as much


def timed(
    given: list[tuple[Tensor, int]],
    launch: bool = False,
    unit: float = 1,
    each: bool = True,
    warm: int = 0,
    queued: Callable[[int, int], int] = lambda rank, n: 0,
) -> list[float]:
    """Seconds of one all_reduce; ``queued`` of BUSY are timed with it. The rest are mistakes."""
    n = len(given)
    return [
        unit
        * (LAUNCH * k if launch else queued(r, n) * BUSY + (k + warm) * seconds(n, x))
        / (k if each else 1)
        for r, (x, k) in enumerate(given)
    ]


def nearly(want: list[Seen], got: list[Seen]) -> list[Seen]:
    """A stopwatch may have a few launches in it, not in each of its repeats, and no more call."""
    for right, mine in zip(want, got, strict=True):
        more = mine.returned - right.returned if isinstance(mine.returned, float) else -1
        if 0 <= more * right.args[1] <= 4 * LAUNCH:
            right.returned = mine.returned
    return want


def one_after_another(play: Play) -> Iterator[Finding]:
    """The calls queue up: each is issued while the one before it still runs."""
    for rank, (x, repeats) in enumerate(play.inputs[0]):
        calls = [e for e in trace_of(play).of(rank) if "reduce" in e.op and e.nbytes == x.nbytes]
        if len(calls) < repeats:
            text = f"rank {rank} calls all_reduce {len(calls)} times; repeats is {repeats}"
            yield Finding("repeats", text, rank, len(calls), repeats)
        for before, e in pairwise(calls[-repeats:]):  # what is called before may warm up
            if (e.called or 0.0) > (before.completed or 0.0) - 1e-9:
                text = f"rank {rank} calls all_reduce when the one before it has ended\n  {e.line}"
                yield Finding("host waits", text, rank)
                break


wrong = turned(timed)
declare(
    Exercise(
        "07.1",
        "all_reduce_seconds",
        timed,
        inputs=lambda case, rank: (torch.ones(case.length), case.options["repeats"]),
        core=lambda rng: [
            *(
                Case(n, 100_000, options={"repeats": k}, backend="nccl", busy=BUSY)
                for n, k in ((2, 3), (3, 5), (4, 2), (5, 4))
            ),
            Case(
                2, rng.randint(100_000, 200_000), options={"repeats": 7}, backend="nccl", busy=BUSY
            ),
        ],
        sturdy=lambda rng: [Case(8, 100_000, options={"repeats": 3}, backend="nccl", busy=BUSY)],
        smaller=lambda case: [],
        settle=nearly,
        free=["left"],
        tolerance=0.1,
        blank=False,
        rules=[one_after_another],
        diagnoses=[
            Diagnosis(
                "repeats",
                "all_reduce is to be called `repeats` times: one call alone may be an unusual one.",
                found("repeats"),
            ),
            Diagnosis(
                "host-waits",
                "Between two repeats the host waits, for its GPU or for the other "
                "ranks, and so does the GPU for the next call. Calls queue up in the stream: "
                "wait once, after the last.",
                found("host waits"),
            ),
            Diagnosis(
                "events",
                "elapsed_time compares two events that were made with enable_timing=True, once "
                "both have happened. Which call makes the host wait for the second one?",
                says("enable_timing", "device not ready"),
            ),
        ],
        mistakes=[
            wrong(
                "only-the-launch",
                "That is how long the host takes to launch the calls, some 5 µs "
                "each. When has the GPU done them, and which call makes the host wait for that? "
                "(wait() stops only the stream.)",
                {"launch": True},
                {"launch": True, "each": False},
            ),
            wrong(
                "starts-too-early",
                "The GPU had work to do before, and the stopwatch ran meanwhile. "
                "What has to have ended on every rank before it starts?",
                {"queued": lambda rank, n: n},
                {"queued": lambda rank, n: rank + 1},
            ),
            wrong(
                "others-are-late",
                "Ranks that were ready first have timed the wait for the last "
                "one. A rank can wait for its own GPU; what makes it wait for the others'?",
                *({"queued": lambda rank, n: n - rank - 1, "each": each} for each in (True, False)),
            ),
            wrong(
                "unit",
                "The digits are right, and the unit is not: seconds are asked for. In which "
                "unit does elapsed_time answer?",
                {"unit": 1e3},
                {"unit": 1e-3},
                {"unit": 1e6},
            ),
            wrong("warm-up", "One call more than repeats is timed. Is it the warm-up?", warm=1),
            wrong(
                "not-divided",
                "That is the time of all repeats together.",
                {"each": False},
                {"each": False, "unit": 1e3},
            ),
        ],
    )
)


ORDER_OF_GLOO = (
    "On NCCL one Work may tell of the calls before it: a group runs them in order. gloo promises "
    "no order, and one case is played there: wait for each Work."
)


def order_of_gloo(kind: str) -> Diagnosis:
    """Of a Work that is not waited for, where modelled GPUs find nothing wrong."""
    return Diagnosis(
        "order-of-gloo", ORDER_OF_GLOO, lambda p: p.case.backend == "gloo" and found(kind)(p)
    )


# ---- 07.2 average_while_computing ----------------------------------------------------------------


def averaged(given: list[tuple[Layers]], divided: bool = True) -> None:
    """Each layer's gradient becomes the mean over the ranks. The rest are mistakes."""
    for k in range(len(given[0][0])):
        grads = [layers[k][1] for (layers,) in given]
        mean = torch.stack(grads).sum(0) / (len(given) if divided else 1)
        for grad in grads:
            grad.copy_(mean)


def layers_of(case: Case, rank: int) -> tuple[Layers]:
    one = Case(case.world, case.length, numbers="random", seed=case.seed)
    many, ms = case.options["layers"], case.options["ms"]  # in one case the last layer takes longer
    return (
        [
            (
                (10 if ms < 0.05 and k == many - 1 else 1) * ms * 1e-3,
                tensor(one.call(k), rank) * case.world,
            )
            for k in range(many)
        ],
    )


def ends(play: Play, overlap: bool = True) -> float:
    """When the last average is there: each waits for its own layer, and for the one before it."""
    computed = communicated = 0.0
    for spent, grad in play.inputs[0][0][0]:
        computed = (computed if overlap else max(computed, communicated)) + spent
        communicated = max(computed, communicated) + seconds(
            play.case.world, grad, play.case.network
        )
    return communicated


def overlapped(play: Play) -> Iterator[Finding]:
    """The last average is there when computing and communicating, side by side, allow it."""
    most = 1.01 * ends(play) + 2 * LAUNCH
    mine = max((e.completed or 0.0 for e in trace_of(play).events), default=0.0)
    if play.case.backend == "nccl" and mine > most:
        yield Finding(
            "slow",
            f"the last average is there after {mine * 1e3:.2f} ms, with overlap "
            f"it would be after {ends(play) * 1e3:.2f} ms",
        )


def in_time(play: Play) -> Iterator[Finding]:
    """Each gradient is sent after its layer has been computed, and issued before the first has."""
    computed = list(accumulate(spent for spent, _ in play.inputs[0][0][0])) or [0.0]
    for e in trace_of(play).events if play.case.backend == "nccl" else ():
        after, called = computed[min(e.seq, len(computed) - 1)], e.called or 0.0
        times = f"begins after {e.issued * 1e3:.2f} ms, its layer ends after {after * 1e3:.2f} ms"
        if e.issued < 0.99 * after:
            yield Finding("too early", f"rank {e.rank}: {e.op} {times}\n  {e.line}", e.rank)
        elif called > computed[0]:
            yield Finding(
                "host stands",
                f"rank {e.rank} calls {e.op} after {called * 1e3:.2f} ms: "
                f"its host has waited for the GPU\n  {e.line}",
                e.rank,
            )


wrong = turned(averaged)
declare(
    Exercise(
        "07.2",
        "average_while_computing",
        averaged,
        inputs=layers_of,
        core=lambda rng: [
            *(
                Case(n, 25_000, options={"layers": layers, "ms": ms}, backend="nccl")
                for n, layers, ms in ((2, 2, 0.05), (3, 4, 0.1), (4, 3, 0.05))
            ),
            Case(5, 30_000, options={"layers": rng.randrange(3, 7), "ms": 0.1}, backend="nccl"),
            Case(4, 250_000, options={"layers": 3, "ms": 0.03}, backend="nccl"),
            Case(3, 4, options={"layers": 3, "ms": 1.0}),
        ],
        sturdy=lambda rng: [
            Case(1, 4, options={"layers": 2, "ms": 0.1}, backend="nccl"),
            Case(3, 4, options={"layers": 0, "ms": 0.1}, backend="nccl"),
            Case(8, 9, options={"layers": 2, "ms": 0.1}, backend="nccl", calls=2),
        ],
        smaller=lambda case: [],
        length_is="gradients of length",
        budget=[overlapped, in_time],
        regimes=lambda rng: [  # the latency, or the bytes, take longer than a layer
            Case(3, 9, options={"layers": 4, "ms": 0.05}, backend="nccl"),
            Case(2, 250, options={"layers": 4, "ms": 0.05}, backend="nccl", bandwidth=SLOW * 10),
        ],
        mistakes=[
            wrong(
                "sum",
                "Every rank has the sum of all gradients: n times too large. Is it divided, "
                "and in place?",
                divided=False,
            )
        ],
        diagnoses=[
            order_of_gloo("never waited for"),
            Diagnosis(
                "cuda-alone",
                "Where there is no GPU there is no torch.cuda to ask. "
                "torch.get_device_module(device()) has the same calls everywhere. (And must "
                "the host wait here at all?)",
                says("has no GPU", "CUDA", "dummy base class"),
            ),
            Diagnosis(
                "too-early",
                "The gradient of a layer is there when the layer has been computed, "
                "and it is sent before.",
                found("too early"),
            ),
            Diagnosis(
                "host-stands",
                "The host waits for the GPU on the way, and issues nothing "
                "meanwhile. Which line looks at a number, or waits for the device?",
                found("host stands"),
            ),
            Diagnosis(
                "after-computing",
                "The first all_reduce begins when everything is computed. When could it begin?",
                lambda play: (
                    found("slow")(play)
                    and min(e.issued for e in trace_of(play).events)
                    >= sum(spent for spent, _ in play.inputs[0][0][0])
                ),
            ),
            Diagnosis(
                "together",
                "One all_reduce carries the gradients of several layers. It begins "
                "when the last of these is computed, though the first were there before.",
                lambda play: (
                    found("slow")(play) and len(trace_of(play).of(0)) < len(play.inputs[0][0][0])
                ),
            ),
            Diagnosis(
                "one-by-one",
                "A layer's computing waits for the all_reduce of an earlier one. "
                "Which line makes the stream wait, and when is the mean needed?",
                found("slow"),
            ),
        ],
    )
)

# ---- 07.3 exchange_edges -------------------------------------------------------------------------


def edges(
    given: list[tuple[Tensor]],
    swapped: Callable[[int], bool] = lambda n: False,
    near: Callable[[int], bool] = lambda n: False,
) -> list:
    """The left neighbour's last row and the right one's first. The rest are mistakes."""
    n, out = len(given), []
    for rank in range(n):
        left, right = given[(rank - 1) % n][0], given[(rank + 1) % n][0]
        pair = left[0 if near(n) else -1], right[-1 if near(n) else 0]
        out.append(tuple(row.clone() for row in (pair[::-1] if swapped(n) else pair)))
    return out


def rows(case: Case, rank: int) -> tuple[Tensor]:
    many = Case(
        case.world, case.length * case.options["rows"], case.dtype, numbers="random", seed=case.seed
    )
    return (tensor(many, rank).reshape(case.options["rows"], case.length),)


def on_gpus(worlds: tuple[int, ...], rows: int, length: int, **rest: Any) -> list[Case]:
    return cases(worlds, (length,), options={"rows": rows}, backend="nccl", **rest)


wrong = turned(edges)
declare(
    Exercise(
        "07.3",
        "exchange_edges",
        edges,
        inputs=rows,
        core=lambda rng: [
            *on_gpus((3, 2, 4, 5), 3, 2),
            *on_gpus((2, 3), 2, rng.randrange(3, 40)),
            Case(3, 2, options={"rows": 3}),
        ],
        sturdy=lambda rng: [
            *on_gpus((1, 2), 1, 3),
            *on_gpus((1, 8, crowd(rng)), 3, 2),
            *on_gpus((3,), 2, 3, dtype="int64"),
            *on_gpus((3,), 3, 2, calls=3),
        ],
        length_is="rows of length",
        smaller=lambda case: [],
        rules=[rules.no_collectives],
        special=lambda case: {"one row"} if case.options["rows"] == 1 else set(),
        budget=[
            rules.sends_at_most(lambda play: 2),
            rules.bytes_at_most(lambda play: 2 * play.given(0)[0].nbytes),
        ],
        mistakes=[
            wrong(
                "order-of-receives",
                "With two ranks both messages come from the same neighbour, and "
                "the first receive gets what was sent first. In which order does that neighbour "
                "send?",
                swapped=lambda n: n == 2,
            ),
            wrong(
                "swapped",
                "What came from the left is returned as what came from the right.",
                {"swapped": lambda n: True},
                {"swapped": lambda n: n > 2},
            ),
            wrong(
                "far-edges",
                "These are the neighbours' other edges. The row above a block is the "
                "left neighbour's last one: to which neighbour does the last row go?",
                {"near": lambda n: True},
                {"near": lambda n: n > 2},
                {"near": lambda n: True, "swapped": lambda n: True},
            ),
        ],
        diagnoses=[
            order_of_gloo("read before wait"),
            Diagnosis(
                "whole-block",
                "Whole blocks travel. Which rows does a neighbour need?",
                lambda p: not p.findings and found("bytes")(p) and rules.whole_tensors(p),
            ),
            Diagnosis(
                "tags",
                "NCCL knows no tags: between two ranks, messages meet in the order in "
                "which they are issued.",
                says("tag"),
            ),
            Diagnosis(
                "unbatched",
                "On NCCL the calls of a group queue up, one after another, and a "
                "send in front waits for a receive that stands behind another send. What makes "
                "one call of several?",
                lambda play: isinstance(play.error, Deadlock) and play.case.backend == "nccl",
            ),
        ],
    )
)

# ---- 07.4 first_missing --------------------------------------------------------------------------

CALLS = "calls"  # the name of an option: of each rank its calls, as in "0: all#0 tp01#0; 1: all#0"
MESH = "0: tp01#0 dp02#0 all#0; 1: tp01#0 dp13#0; 2: tp23#0 dp02#0 all#0; 3: tp23#0"
Dumps = list[list[dict[str, Any]]]


def dumps_of(case: Case) -> tuple[Dumps]:
    """The calls as dictionaries. A group's name ends with its members; ``all`` has everybody."""
    by_rank = [re.findall(r"(\w+)#(\d+)/?(\w*)", c) for c in case.options[CALLS].split("; ")]
    return (
        [
            [
                {
                    "group": group,
                    "seq": int(seq),
                    "op": op or "all_reduce",
                    "members": list(range(len(by_rank)))
                    if group == "all"
                    else [int(rank) for rank in group if rank.isdigit()],
                }
                for group, seq, op in calls
            ]
            for calls in by_rank
        ],
    )


def absent(
    given: list[tuple[Dumps]],
    usual: Callable[[list[str]], list[str]] = lambda ops: [mode(ops)],
    order: Callable[[Any], Any] = lambda key: key,
    victims: bool = False,
    nobody: bool = False,
    everybody: bool = False,
    reported: bool = False,
    silent: bool = False,
    gives_up: bool = False,
    last: bool = False,
    blames: bool = False,
    most: bool = False,
) -> list:
    """Of the first call that not all members have made: who has not, and waits for nobody."""
    [(dumps,)] = given
    made: dict[tuple[str, int], dict[int, str]] = {}
    members: dict[str, list[int]] = {}
    for rank, entry in ((rank, entry) for rank, own in enumerate(dumps) for entry in own):
        group = entry["group"]
        made.setdefault((group, entry["seq"]), {})[rank] = entry["op"]
        members[group] = list(range(len(dumps))) if everybody else entry["members"]
    for by in made.values():
        counts = usual([*by.values()])  # in a tie, mode takes the first, that of the lowest rank
        for rank in [rank for rank, op in by.items() if op not in counts]:
            del by[rank]
    lacking = {key: sorted(set(members[key[0]]) - set(by)) for key, by in made.items()}
    waiting = {
        rank
        for key, by in made.items()
        if lacking[key] or silent
        for rank in by
        if not last or (dumps[rank][-1]["group"], dumps[rank][-1]["seq"]) == key
    }
    incomplete = [(key, lacking[key]) for key in sorted(made, key=order) if lacking[key]]
    incomplete.sort(key=lambda call: -len(call[1]) if most else 0)
    for (group, seq), ranks in incomplete[:1] if gives_up else incomplete:
        who = [rank for rank in ranks if victims or rank not in waiting]
        if who or nobody:
            told = sorted(made[group, seq]) if reported else ranks if blames else who
            return [(group, seq, told)]
    return [None]


wrong = turned(absent)
declare(
    Exercise(
        "07.4",
        "first_missing",
        absent,
        inputs=lambda case, rank: dumps_of(case),
        core=lambda rng: [
            Case(1, options={CALLS: text})
            for text in (
                "0: all#0 all#1; 1: all#0",
                "0: ; 1: all#0",
                "0: all#0; 1: all#0",
                "0: all#0 all#1; 1: all#0; 2: all#0 all#1; 3: all#0",
                "0: tp01#0; 1: dp12#0; 2: ",
                "0: dp01#0; 1: tp12#0; 2: ",
                "0: a01#0 a01#1; 1: a01#0; 2: b234#0; 3: ; 4: ",
                "0: z01#0 c02#0; 1: ; 2: c02#0 a02#0",
                "0: all#0 tp01#0; 1: all#0 tp01#0; 2: all#0",
                MESH,
                MESH.replace(" all#0", ""),
                "0: all#0 all#1; 1: all#0 all#1; 2: all#0 all#1/broadcast",
            )
        ],
        sturdy=lambda rng: [
            Case(1, options={CALLS: text})
            for text in (
                "0: ",
                "0: all#0/broadcast; 1: all#0",
                "0: all#0; 1: all#0/broadcast",
                "0: all#0/broadcast; 1: all#0; 2: all#0",
                f"0: {' '.join(f'all#{k}' for k in range(12))}; 1: all#0 all#1",
                "0: dp01#0; 1: tp01#0",
                "0: b01#0; 1: ; 2: a23#0; 3: ",
                MESH + "; 4: tp45#0; 5: ",
            )
        ],
        in_ranks=False,
        rules=[without_a_word],
        smaller=lambda case: [],
        mistakes=[
            wrong(
                "who-reported",
                "These ranks have made the call: they wait, and tell of it. Whom do they wait for?",
                reported=True,
            ),
            wrong(
                "only-silent",
                "A rank that has called something need not wait: if all its calls are "
                "complete, it can be the one that is missing.",
                silent=True,
            ),
            wrong(
                "not-members",
                "These ranks are no members of the group, and never will make the call.",
                everybody=True,
            ),
            wrong(
                "not-first",
                "Somebody is missing here as well. Of several such calls the first is "
                "asked for: by name of the group, then by seq, where 9 comes before 10.",
                {"order": lambda key: 0},
                {"order": lambda key: key[::-1]},
                {"order": lambda key: (key[0], str(key[1]))},
                {"most": True},
            ),
            wrong(
                "victim",
                "The rank named here has not made that call because it waits in another "
                "one itself. Whom does it wait for?",
                {"victims": True},
                {"victims": True, "everybody": True},
                {"victims": True, "usual": list},
                {"blames": True},
            ),
            wrong(
                "last-call",
                "A rank waits also in a call that is not its last: an asynchronous one "
                "lets it go on to another group's.",
                {"last": True},
                {"last": True, "usual": list},
            ),
            wrong(
                "another-op",
                "Two ranks at the same seq of the same group, with two names of ops, "
                "have not made the same call, and the one in the minority does not wait.",
                {"usual": list},
                {"usual": lambda ops: ops[:1]},
            ),
            wrong(
                "tie",
                "Here as many ranks have one op's name as another's. Then the op of the "
                "lowest rank counts, whatever it is called.",
                *(
                    {"usual": usual}
                    for usual in (
                        lambda ops: [min(set(ops), key=lambda op: (-ops.count(op), op))],
                        lambda ops: [max(set(ops), key=lambda op: (ops.count(op), op))],
                        lambda ops: [mode(ops[::-1])],
                    )
                ),
            ),
            wrong(
                "gives-up",
                "The first incomplete call lacks only ranks that wait. The cause is in a "
                "later one.",
                {"gives_up": True},
                {"nobody": True},
            ),
        ],
    )
)
