"""Lesson 07: time an all_reduce, average while computing, swap edges, find who is missing.

Times are those of the modelled GPU, which has the network that ``simulate`` has by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, pairwise
from statistics import mode
from typing import Any

import torch
from torch import Tensor

from course_check import rules
from course_check.cases import SLOW, Case, crowd, rows, tensor
from course_check.exercise import Finding, Play
from course_check.harness.seen import Seen
from course_check.rules import without_a_word
from course_check.usual_diagnoses import OfPlay, found, says
from course_exercises.declare import each, exercise, over_budget
from course_sim import Network
from course_sim.costs import textbook_seconds

LAUNCH = 5e-6  # seconds of the host for each call
USUAL = Network()


def time_all_reduce(n: int, x: Tensor, network: Network = USUAL) -> float:
    """What one all_reduce of this tensor takes on a modelled network."""
    return textbook_seconds("all_reduce", n, x.nbytes, network.latency, 1 / network.bandwidth)


on_gpus = partial(rows, backend="nccl")


# ---- 07.1 all_reduce_seconds ---------------------------------------------------------------------

BUSY = 4e-3  # seconds of work that rank 0's GPU has before the call; rank r has r + 1 times as much


def time_calls(
    given: list[tuple[Tensor, int]],
    queued: Callable[[int, int], int] = lambda rank, n: 0,
    warm_ups: int = 0,
    launches_alone: bool = False,
    divided: bool = True,
    unit: float = 1,
) -> list[float]:
    """Seconds of one all_reduce. The rest are mistakes: ``queued`` of BUSY are timed as well."""
    n, out = len(given), []
    for rank, (x, repeats) in enumerate(given):
        ran = queued(rank, n) * BUSY + (repeats + warm_ups) * time_all_reduce(n, x)
        span = repeats * LAUNCH if launches_alone else ran
        out.append(unit * span / (repeats if divided else 1))
    return out


def accept_launches(want: list[Seen], got: list[Seen]) -> list[Seen]:
    """A stopwatch may have a few launches in it, not in each of its repeats, and no more call."""
    for right, mine in zip(want, got, strict=True):
        more = mine.returned - right.returned if isinstance(mine.returned, float) else -1
        if 0 <= more * right.args[1] <= 4 * LAUNCH:
            right.returned = mine.returned
    return want


def check_queued(play: Play) -> Iterator[Finding]:
    """The calls queue up: each is issued while the one before it still runs."""
    for rank, (x, repeats) in enumerate(play.inputs[0]):
        calls = [e for e in play.trace.of(rank) if "reduce" in e.op and e.nbytes == x.nbytes]
        if len(calls) < repeats:
            text = f"rank {rank} calls all_reduce {len(calls)} times; repeats is {repeats}"
            yield Finding("repeats", text, rank, len(calls), repeats)
        # Calls before the repeats may warm up. If calls are missing, only that is reported.
        for before, e in pairwise(calls[-repeats:] if len(calls) >= repeats else ()):
            if (e.called or 0.0) > (before.completed or 0.0) - 1e-9:
                text = f"rank {rank} calls all_reduce when the one before it has ended\n  {e.line}"
                yield Finding("host-waits", text, rank)
                break


behind_work = partial(on_gpus, "repeats", busy=BUSY)
exercise(
    "07.1 all_reduce_seconds",
    time_calls,
    inputs=lambda case, rank: (torch.ones(case.length), case.options["repeats"]),
    core=lambda rng: [
        *behind_work((2, 100_000, 3), (3, 100_000, 5), (4, 100_000, 6), (5, 100_000, 4)),
        *behind_work((2, rng.randint(100_000, 200_000), 7)),
    ],
    sturdy=lambda rng: behind_work((8, 100_000, 3)),
    settle=accept_launches,
    free=["left"],
    tolerance=0.1,
    blank=False,
    rules=[check_queued],
    hints={
        "repeats": "all_reduce is to be called `repeats` times: one call alone may be an unusual "
        "one.",
        "host-waits": "Between two repeats the host waits, for its GPU or for the other ranks, "
        "and then the GPU has to wait for the next call. Calls queue up in the stream: wait "
        "once, after the last.",
        "events": "elapsed_time compares two events that were made with enable_timing=True, once "
        "both have happened. Which call makes the host wait for the second one?",
        "only-the-launch": "That is how long the host takes to launch the calls, some 5 µs each. "
        "When has the GPU done them, and which call makes the host wait for that? (wait() stops "
        "only the stream.)",
        "starts-too-early": "The GPU had work to do before, and the stopwatch ran meanwhile. What "
        "has to have ended on every rank before it starts?",
        "others-are-late": "Ranks that were ready first have timed the wait for the last one. A "
        "rank can wait for its own GPU; which call makes it wait for the GPUs of the others?",
        "unit": "The digits are right, and the unit is not: seconds are asked for. In which unit "
        "does elapsed_time answer?",
        "warm-up": "One call more than repeats is timed. Is it the warm-up?",
        "not-divided": "That is the time of all repeats together.",
    },
    mistakes={
        "only-the-launch": each(launches_alone=[True], divided=(True, False)),
        "starts-too-early": [{"queued": lambda rank, n: n}, {"queued": lambda rank, n: rank + 1}],
        "others-are-late": each(queued=[lambda rank, n: n - rank - 1], divided=(True, False)),
        "unit": each(unit=(1e3, 1e-3, 1e6)),
        "warm-up": {"warm_ups": 1},
        "not-divided": each(divided=[False], unit=(1, 1e3)),
    },
    diagnoses={"events": says("enable_timing", "device not ready")},
)


ORDER_OF_GLOO = (
    "On NCCL one Work may tell of the calls before it: a group runs them in order. gloo promises "
    "no order, and one case is played there: wait for each Work."
)


def on_gloo(kind: str) -> OfPlay:
    """Of a Work that is not waited for, where modelled GPUs find nothing wrong."""
    return lambda play: play.case.backend == "gloo" and found(kind)(play)


# ---- 07.2 average_while_computing ----------------------------------------------------------------

Layers = list[tuple[float, Tensor]]  # of each the seconds that it computes, and its gradient


def average_layers(given: list[tuple[Layers]], divided: bool = True) -> None:
    """Each layer's gradient becomes the mean over the ranks. The rest are mistakes."""
    for layer in zip(*(layers for (layers,) in given), strict=True):
        grads = [grad for _, grad in layer]
        mean = torch.stack(grads).sum(0) / (len(given) if divided else 1)
        for grad in grads:
            grad.copy_(mean)


def make_layers(case: Case, rank: int) -> tuple[Layers]:
    """Layers that compute equally long, but for the last one where they are short."""
    many, ms = case.options["layers"], case.options["ms"]
    one = Case(case.world, case.length, numbers="random", seed=case.seed)
    grads = [tensor(one.call(k), rank) * case.world for k in range(many)]
    spans = [ms * 1e-3] * many
    if ms < 0.05:
        spans[-1] *= 10
    return (list(zip(spans, grads, strict=True)),)


def find_end(play: Play) -> float:
    """When the last average is there: each waits for its own layer, and for the one before it."""
    computed = communicated = 0.0
    for spent, grad in play.given(0):
        computed += spent
        one = time_all_reduce(play.case.world, grad, play.case.network)
        communicated = max(computed, communicated) + one
    return communicated


def check_overlap(play: Play) -> Iterator[Finding]:
    """The last average is there when computing and communicating, side by side, allow it."""
    best = find_end(play)
    mine = max((e.completed or 0.0 for e in play.trace.events), default=0.0)
    if play.case.backend == "nccl" and mine > 1.01 * best + 2 * LAUNCH:
        last = f"the last average is there after {mine * 1e3:.2f} ms"
        yield Finding("slow", f"{last}, with overlap it would be after {best * 1e3:.2f} ms")


def check_times(play: Play) -> Iterator[Finding]:
    """Each gradient is sent after its layer has been computed, and issued before the first has."""
    computed = list(accumulate(spent for spent, _ in play.given(0))) or [0.0]
    for e in play.trace.events if play.case.backend == "nccl" else ():
        after, called = computed[min(e.seq, len(computed) - 1)], e.called or 0.0
        if e.issued < 0.99 * after:
            begins = f"{e.op} begins after {e.issued * 1e3:.2f} ms"
            text = f"rank {e.rank}: {begins}, its layer ends after {after * 1e3:.2f} ms\n  {e.line}"
            yield Finding("too-early", text, e.rank)
        elif called > computed[0]:
            text = f"rank {e.rank} calls {e.op} after {called * 1e3:.2f} ms"
            text += f": its host has waited for the GPU\n  {e.line}"
            yield Finding("host-stands", text, e.rank)


def begins_after_computing(play: Play) -> bool:
    """No call begins before everything is computed."""
    computed = sum(spent for spent, _ in play.given(0))
    return found("slow")(play) and min(e.issued for e in play.trace.events) >= computed


layered = partial(on_gpus, "layers ms")
exercise(
    "07.2 average_while_computing",
    average_layers,
    inputs=make_layers,
    core=lambda rng: [
        *layered((2, 25_000, 2, 0.05), (3, 25_000, 4, 0.1), (4, 25_000, 3, 0.05)),
        *layered((5, 30_000, rng.randrange(3, 7), 0.1), (4, 250_000, 3, 0.03)),
        *layered((3, 4, 3, 1.0), backend="gloo"),
    ],
    sturdy=lambda rng: [
        *layered((1, 4, 2, 0.1), (3, 4, 0, 0.1)),
        *layered((8, 9, 2, 0.1), calls=2),
    ],
    length_is="gradients of length",
    budget=[check_overlap, check_times],
    regimes=lambda rng: [  # the latency, or the bytes, take longer than a layer
        *layered((3, 9, 4, 0.05)),
        *layered((2, 250, 4, 0.05), bandwidth=SLOW * 10),
    ],
    hints={
        "sum": "Every rank has the sum of all gradients: n times too large. Is it divided, and in "
        "place?",
        "order-of-gloo": ORDER_OF_GLOO,
        "cuda-alone": "Where there is no GPU there is no torch.cuda to ask. "
        "torch.get_device_module(device()) has the same calls everywhere. (And must the host wait "
        "here at all?)",
        "too-early": "A layer's gradient is there when the layer has been computed, and here it "
        "is sent before that.",
        "host-stands": "The host waits for the GPU on the way, and issues nothing meanwhile. "
        "Which line looks at a number, or waits for the device?",
        "after-computing": "The first all_reduce begins when everything is computed. When could "
        "it begin?",
        "together": "One all_reduce carries the gradients of several layers. It begins when the "
        "last of these is computed, although the others were ready earlier.",
        "one-by-one": "A layer's computing waits for the all_reduce of an earlier one. Which line "
        "makes the stream wait, and when is the mean needed?",
    },
    mistakes={"sum": {"divided": False}},
    diagnoses={
        "order-of-gloo": on_gloo("never waited for"),
        "cuda-alone": says("has no GPU", "CUDA", "dummy base class"),
        "after-computing": begins_after_computing,
        "together": lambda p: found("slow")(p) and len(p.trace.of(0)) < len(p.given(0)),
        "one-by-one": found("slow"),
    },
)

# ---- 07.3 exchange_edges -------------------------------------------------------------------------


def swap_edges(
    given: list[tuple[Tensor]],
    swapped: Callable[[int], bool] = lambda n: False,
    far_rows: Callable[[int], bool] = lambda n: False,
) -> list:
    """The left neighbour's last row and the right one's first. The rest are mistakes."""
    n, out = len(given), []
    for rank in range(n):
        left, right = given[(rank - 1) % n][0], given[(rank + 1) % n][0]
        pair = (left[0], right[-1]) if far_rows(n) else (left[-1], right[0])
        out.append(tuple(row.clone() for row in (pair[::-1] if swapped(n) else pair)))
    return out


def make_block(case: Case, rank: int) -> tuple[Tensor]:
    """The rows of this rank."""
    rows = case.options["rows"]
    flat = Case(case.world, case.length * rows, case.dtype, numbers="random", seed=case.seed)
    return (tensor(flat, rank).reshape(rows, case.length),)


def list_blocks(worlds: tuple[int, ...], rows: int, length: int, **rest: Any) -> list[Case]:
    return [Case(w, length, options={"rows": rows}, backend="nccl", **rest) for w in worlds]


exercise(
    "07.3 exchange_edges",
    swap_edges,
    inputs=make_block,
    core=lambda rng: [
        *list_blocks((3, 2, 4, 5), 3, 2),
        *list_blocks((2, 3), 2, rng.randrange(3, 40)),
        Case(3, 2, options={"rows": 3}),
    ],
    sturdy=lambda rng: [
        *list_blocks((1, 2), 1, 3),
        *list_blocks((1, 8, crowd(rng)), 3, 2),
        *list_blocks((3,), 2, 3, dtype="int64"),
        *list_blocks((3,), 3, 2, calls=3),
    ],
    length_is="rows of length",
    rules=[rules.no_collectives],
    special=lambda case: {"one row"} if case.options["rows"] == 1 else set(),
    budget=[
        rules.sends_at_most(lambda play: 2),
        rules.bytes_at_most(lambda play: 2 * play.given(0)[0].nbytes),
    ],
    hints={
        "order-of-receives": "With two ranks both messages come from the same neighbour, and the "
        "first receive gets what was sent first. In which order does that neighbour send?",
        "swapped": "What came from the left is returned as what came from the right.",
        "far-edges": "These are the neighbours' other edges. The row above a block is the left "
        "neighbour's last one: to which neighbour does the last row go?",
        "order-of-gloo": ORDER_OF_GLOO,
        "whole-block": "Whole blocks travel. Which rows does a neighbour need?",
        "tags": "NCCL knows no tags: between two ranks, messages meet in the order in which they "
        "are issued.",
        "unbatched": "On NCCL the calls of a group queue up, one after another, and a send in "
        "front waits for a receive that stands behind another send. What makes one call of "
        "several?",
    },
    mistakes={
        "order-of-receives": {"swapped": lambda n: n == 2},
        "swapped": [{"swapped": lambda n: True}, {"swapped": lambda n: n > 2}],
        "far-edges": [
            {"far_rows": lambda n: True},
            {"far_rows": lambda n: n > 2},
            {"far_rows": lambda n: True, "swapped": lambda n: True},
        ],
    },
    diagnoses={
        "order-of-gloo": on_gloo("read before wait"),
        "whole-block": lambda p: over_budget("bytes")(p) and rules.whole_tensors(p),
        "tags": says("tag"),
        "unbatched": lambda p: found("Deadlock")(p) and p.case.backend == "nccl",
    },
)

# ---- 07.4 first_missing --------------------------------------------------------------------------

CALLS = "calls"  # the name of an option: of each rank its calls, as in "0: all#0 tp01#0; 1: all#0"
MESH = "0: tp01#0 dp02#0 all#0; 1: tp01#0 dp13#0; 2: tp23#0 dp02#0 all#0; 3: tp23#0"
Dumps = list[list[dict[str, Any]]]
Call = tuple[str, int]  # a group's name, and the number of the call in it


def make_entry(world: int, group: str, seq: str, op: str) -> dict[str, Any]:
    """A call as a dictionary. A group's name ends with its members; ``all`` has everybody."""
    members = range(world) if group == "all" else (int(rank) for rank in group if rank.isdigit())
    return {"group": group, "seq": int(seq), "op": op or "all_reduce", "members": [*members]}


def make_dumps(case: Case) -> tuple[Dumps]:
    """What each rank reports of its calls."""
    by_rank = [re.findall(r"(\w+)#(\d+)/?(\w*)", c) for c in case.options[CALLS].split("; ")]
    return ([[make_entry(len(by_rank), *call) for call in calls] for calls in by_rank],)


def name_call(entry: dict[str, Any]) -> Call:
    """A call by its group and its number in it."""
    return entry["group"], entry["seq"]


def find_absent(
    given: list[tuple[Dumps]],
    counts: Callable[[list[str]], list[str]] = lambda ops: [mode(ops)],
    order: Callable[[Call], Any] = lambda call: call,
    everybody: bool = False,
    silent_alone: bool = False,
    last_alone: bool = False,
    first_alone: bool = False,
    waiting_too: bool = False,
    nobody_too: bool = False,
    names: str = "missing",
) -> list:
    """Of the first call that not all members have made: who has not, and waits for nobody.

    Of several ops those that ``counts`` returns have made the call; in a tie, mode takes the first,
    that of the lowest rank.
    """
    [(dumps,)] = given
    entries = [(rank, entry) for rank, own in enumerate(dumps) for entry in own]
    ranks = range(len(dumps))
    members = {name_call(e): ranks if everybody else e["members"] for _, e in entries}
    ops: dict[Call, dict[int, str]] = {call: {} for call in members}
    for rank, e in entries:
        ops[name_call(e)][rank] = e["op"]
    counted = {call: counts([*by_rank.values()]) for call, by_rank in ops.items()}
    made = {call: [r for r, op in ops[call].items() if op in counted[call]] for call in ops}
    lacking = {call: sorted({*members[call]} - {*made[call]}) for call in made}
    incomplete = [call for call in sorted(made, key=order) if lacking[call]]
    waiting = {
        rank
        for call in (made if silent_alone else incomplete)
        for rank in made[call]
        if not last_alone or call == name_call(dumps[rank][-1])
    }
    for call in incomplete[:1] if first_alone else incomplete:
        missing = [rank for rank in lacking[call] if waiting_too or rank not in waiting]
        if missing or nobody_too:
            told = {"missing": missing, "lacking": lacking[call], "made": made[call]}
            return [(*call, told[names])]
    return [None]


def list_dumps(*texts: str) -> list[Case]:
    return [Case(1, options={CALLS: text}) for text in texts]


exercise(
    "07.4 first_missing",
    find_absent,
    inputs=lambda case, rank: make_dumps(case),
    core=lambda rng: list_dumps(
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
    ),
    sturdy=lambda rng: list_dumps(
        "0: ",
        "0: all#0/broadcast; 1: all#0",
        "0: all#0; 1: all#0/broadcast",
        "0: all#0/broadcast; 1: all#0; 2: all#0",
        f"0: {' '.join(f'all#{k}' for k in range(12))}; 1: all#0 all#1",
        "0: dp01#0; 1: tp01#0",
        "0: b01#0; 1: ; 2: a23#0; 3: ",
        MESH + "; 4: tp45#0; 5: ",
    ),
    in_ranks=False,
    rules=[without_a_word],
    hints={
        "who-reported": "These ranks have made the call, so they wait. Whom do they wait for?",
        "only-silent": "A rank that has called something need not wait: if all its calls are "
        "complete, it can be the one that is missing.",
        "not-members": "These ranks are not members of the group, and will never make the call.",
        "not-first": "Somebody is missing here as well. Of several such calls the first is asked "
        "for: by name of the group, then by seq, where 9 comes before 10.",
        "victim": "The rank named here has not made that call because it waits in another one "
        "itself. Whom does it wait for?",
        "last-call": "A rank can also wait in a call that is not its last: after an asynchronous "
        "call it goes on to a call of another group.",
        "another-op": "Two ranks at the same seq of the same group, with two names of ops, have "
        "not made the same call, and the one in the minority does not wait.",
        "tie": "Here as many ranks have one op's name as another's. Then the op of the lowest "
        "rank counts, whatever it is called.",
        "gives-up": "The first incomplete call lacks only ranks that wait. The cause is in a "
        "later one.",
    },
    mistakes={
        "who-reported": {"names": "made"},
        "only-silent": {"silent_alone": True},
        "not-members": {"everybody": True},
        "not-first": [
            {"order": lambda call: 0},
            {"order": lambda call: call[::-1]},
            {"order": lambda call: (call[0], str(call[1]))},
        ],
        "victim": [
            {"waiting_too": True},
            {"waiting_too": True, "everybody": True},
            {"waiting_too": True, "counts": list},
            {"names": "lacking"},
        ],
        "last-call": [{"last_alone": True}, {"last_alone": True, "counts": list}],
        "another-op": [{"counts": list}, {"counts": lambda ops: ops[:1]}],
        "tie": [
            {"counts": lambda ops: [mode(sorted(ops))]},
            {"counts": lambda ops: [mode(sorted(ops)[::-1])]},
            {"counts": lambda ops: [mode(ops[::-1])]},
        ],
        "gives-up": [{"first_alone": True}, {"nobody_too": True}],
    },
)
