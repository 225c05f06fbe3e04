"""Lesson 09: a tree, recursive doubling, a hierarchy of nodes, and which is the fastest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import floordiv, truediv
from typing import Any

import torch

from course_exercises.formulas import networks
from course_exercises.lesson_02_collectives import rooted_core, rooted_sturdy, worlds_and_lengths
from course_lib.checks import rules
from course_lib.checks.cases import (
    Case,
    both_regimes,
    chunked,
    crowd,
    divides,
    hostile,
    smaller,
    tensor,
)
from course_lib.checks.compare import same
from course_lib.checks.diagnose import found, only
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, Rule, declare, turned


def size(play: Play) -> int:
    return play.given(0).nbytes


def log2_up(play: Play) -> int:
    return (play.case.world - 1).bit_length()


def rounds_at_most(limit: Callable[[Play], int]) -> Rule:
    """It ends, on the modelled network, as soon as so many messages one after the other could."""

    def rule(play: Play) -> Iterable[Finding]:
        took, one = play.run.seconds if play.run else 0.0, play.case.network.seconds(size(play))
        if took > limit(play) * one * (1 + 1e-9):
            yield Finding(
                "rounds",
                f"it takes as long as {took / one:.6g} messages one after "
                f"another, at most {limit(play)} are allowed",
            )

    return rule


def too_slow(play: Play) -> bool:
    """It takes too many rounds; some rank may send too many messages for that reason."""
    return only("rounds", "sends")(play) and found("rounds")(play)


def worlds(case: Case) -> set[str]:
    return worlds_and_lengths(case) | ({"more than 32 ranks"} if case.world > 32 else set())


def many(rng: random.Random, **rest: Any) -> Case:
    """More ranks than a table of rounds would have that is written down for the other cases."""
    return Case(rng.randrange(33, 100), 2, **rest)


LONG_MESSAGE = Diagnosis(
    "long-message",
    "A message is longer than the tensor. In which dtype does it travel, and what else is in it?",
    found("bytes"),
)

# ---- 09.1 tree_broadcast -------------------------------------------------------------------------


def spread(given: list[tuple], adds: int = 0, early: bool = False, sign: int = 1) -> None:
    """Every rank has what src has, told round by round. The rest are mistakes."""
    n, src = len(given), given[0][1]
    places = [given[(sign * src + k) % n][0] for k in range(n)]  # the tensors, src's first
    rounds = [1 << k for k in range((n - 1).bit_length())]
    for knows in reversed(rounds) if early else rounds:
        for place in range(min(knows, n - knows)):
            other = places[place + knows]
            other.copy_(other + places[0 if adds == 2 else place] if adds else places[place])


def told_once(play: Play) -> Iterator[Finding]:
    """No rank is sent the tensor that has it: all ranks together send n − 1 of them."""
    most = (play.case.world - 1) * size(play)
    mine = sum(rules.trace_of(play).bytes_sent(rank) for rank in range(play.case.world))
    if mine > most:
        text = (
            f"all ranks together send {mine} bytes, and {play.case.world - 1} tensors have {most}"
        )
        yield Finding("told again", text, None, mine, most)


wrong = turned(spread)
declare(
    Exercise(
        "09.1",
        "tree_broadcast",
        spread,
        inputs=lambda case, rank: (tensor(case, rank), case.options["src"]),
        core=rooted_core("src"),
        sturdy=rooted_sturdy("src"),
        special=worlds,
        regimes=lambda rng: [
            *both_regimes((4, 7, 16), options={"src": 1}),
            many(rng, options={"src": 1}),
        ],
        rules=[rules.no_collectives],
        budget=[
            rules.sends_at_most(log2_up),
            rules.messages_of_at_most(size),
            rounds_at_most(log2_up),
            rules.bytes_in_total_at_least(lambda p: (p.case.world - 1) * size(p)),
            told_once,
        ],
        diagnoses=[
            LONG_MESSAGE,
            Diagnosis(
                "told-again",
                "Ranks that have the tensor are sent it once more. Who has nothing "
                "yet, in each round?",
                found("told again"),
            ),
            Diagnosis(
                "star",
                "The root tells everybody itself. Who else has the tensor after the "
                "first message, and could help?",
                lambda p: (
                    only("sends", "rounds")(p)
                    and len(rules.sends(p, p.case.options["src"])) == p.case.world - 1
                ),
            ),
            Diagnosis(
                "too-many-rounds",
                "The last rank gets the tensor too late. In every round all "
                "who have it should tell one more each: 1, 2, 4, 8 have it.",
                too_slow,
            ),
        ],
        mistakes=[
            wrong(
                "adds",
                "What arrives is added to what the rank had. src's tensor is to take its place.",
                {"adds": 1},
                {"adds": 2},
            ),
            wrong(
                "too-early",
                "Some ranks pass on a tensor before src's has reached them. Who has "
                "it after the first round, who after the second?",
                early=True,
            ),
            wrong(
                "other-root",
                "The tree grows from another rank than src. Compute each rank's place "
                "by hand: does src get place 0?",
                sign=-1,
            ),
        ],
    )
)

# ---- 09.2 recursive_doubling ---------------------------------------------------------------------


def fractions(case: Case, rank: int) -> tuple[torch.Tensor]:
    """A tensor of the case; or numbers whose sum depends on the order of adding."""
    if not case.options.get("fractions"):
        return (tensor(case, rank),)
    return (torch.rand(case.length, generator=torch.Generator().manual_seed(rank)),)


def in_sum(n: int, rank: int, extras: str = "", wraps: int = 0, short: int = 0) -> list[int]:
    """The ranks that are in this rank's sum. Where n is no power of two, some ranks are extra."""
    power, world = 1 << (n.bit_length() - 1), list(range(n))
    if wraps:
        return [(rank + wraps * i) % n for i in range(1 << (n - 1).bit_length())]
    if extras in ("left out", "untold") and rank >= power:
        return [rank]
    if short:
        return [r for r in world if (r ^ rank) % power < power >> 1]
    return world if extras in ("", "untold") else world[:power]


def doubled(given: list[tuple], **knobs: Any) -> None:
    """Every rank has the sum. The rest are mistakes."""
    n, before = len(given), [t.clone() for (t,) in given]
    for rank, (t,) in enumerate(given):
        t.copy_(sum(before[r] for r in in_sum(n, rank, **knobs)))


def the_same_bits(play: Play) -> Iterator[Finding]:
    for by_rank in play.seen if not play.wrong else []:
        for rank, seen in enumerate(by_rank):
            if not same(seen.args, by_rank[0].args):
                yield Finding("bits", f"rank {rank}'s sum is not rank 0's to the last bit", rank)


wrong = turned(doubled)
declare(
    Exercise(
        "09.2",
        "recursive_doubling",
        doubled,
        inputs=fractions,
        tolerance=1e-6,
        core=lambda rng: [
            *(Case(w, length) for w, length in ((2, 1), (2, 3), (3, 2), (4, 4), (5, 3))),
            Case(rng.choice((3, 5)), rng.randrange(9, 99), numbers="random"),
            Case(3, 3, calls=2),
            *(Case(w, 64, options={"fractions": True}) for w in (3, 4, 5)),
        ],
        sturdy=lambda rng: [
            Case(1, 3),
            Case(3, 0),
            Case(6, 2),
            Case(7, 2),
            Case(8, 2),
            Case(crowd(rng), 3),
            *hostile(3, 6),
        ],
        special=worlds,
        rules=[rules.no_collectives, the_same_bits],
        regimes=lambda rng: [*both_regimes((3, 4, 7, 16)), many(rng)],
        budget=[
            rules.messages_of_at_most(size),
            rules.sends_at_most(lambda p: log2_up(p) + 1),
            rounds_at_most(lambda p: log2_up(p) + 1),
            rules.bytes_in_total_at_least(lambda p: 2 * (p.case.world - 1) * size(p)),
        ],
        diagnoses=[
            LONG_MESSAGE,
            Diagnosis(
                "everyone",
                "Everyone sends to everyone: n − 1 tensors leave each rank, one "
                "after another. Whose tensors could travel as one sum?",
                lambda p: only("sends", "rounds")(p) and p.case.world > 3 and rules.to_everyone(p),
            ),
            Diagnosis(
                "star",
                "One rank adds up for all. Every tensor passes its link on the way in, "
                "and every sum on the way out, while the other links idle.",
                lambda p: only("sends", "rounds")(p) and rules.through_one(p),
            ),
            Diagnosis(
                "bits-differ",
                "Every rank has the sum, and not to the last bit the same one. "
                "Which rank adds up in which order?",
                lambda p: found("bits")(p) and not p.wrong,
            ),
            Diagnosis(
                "too-many-rounds",
                "It takes more rounds than doubling. Do both partners send at "
                "the same time, and is everybody busy in each round?",
                too_slow,
            ),
        ],
        mistakes=[
            wrong(
                "left-out",
                "Some ranks are in nobody's sum. Let each of them first hand its tensor "
                "to one that adds it.",
                {"extras": "left out"},
                {"extras": "not added"},
            ),
            wrong(
                "not-told",
                "The sum is right, and some ranks have not got it: those that handed "
                "their tensor over at the beginning wait for an answer.",
                extras="untold",
            ),
            wrong(
                "twice",
                "Some ranks are in the sum twice. Where n is no power of two, whose sums "
                "overlap in the last round?",
                {"wraps": 1},
                {"wraps": -1},
            ),
            wrong("round-short", "The two halves never meet: a round is missing.", short=1),
        ],
    )
)

# ---- 09.3 fastest --------------------------------------------------------------------------------


def quickest(
    given: list[tuple],
    starts: bool = False,
    extra: int = 2,
    even: int = 0,
    star: int = 2,
    ring: int = 2,
    chunk: Callable = truediv,
    inverted: bool = False,
    order: Callable = list,
    pick: Callable = min,
    tree: int = 2,
    queued: Callable = lambda n: n - 1,
) -> list[str]:
    """The name of the smallest time, the first one where several are. The rest are mistakes."""
    [(n, nbytes, alpha, beta)] = given
    if n == 1:
        return ["star"]
    each = 1 / beta if inverted else beta
    low, high, whole = n.bit_length() - 1, (n - 1).bit_length(), nbytes * each
    rounds, one = low + (extra if low < high else even), alpha + whole
    times = {
        "star": star * (((n - 1) if starts else 1) * alpha + queued(n) * whole),
        "doubling": rounds * one,
        "ring": ring * (n - 1) * (alpha + chunk(nbytes, n) * each),
        "tree": tree * high * one,
    }
    return [pick(order(times), key=times.__getitem__)]


def of_networks(*rows: tuple) -> list[Case]:
    names = ("n", "nbytes", "alpha", "beta")
    return [Case(1, options=dict(zip(names, row, strict=True))) for row in rows]


wrong = turned(quickest)
declare(
    Exercise(
        "09.3",
        "fastest",
        quickest,
        inputs=lambda case, rank: tuple(case.options.values()),
        core=lambda rng: of_networks(
            (4, 2, 1.0, 1.0),
            (64, 8, 1.0, 1e-6),
            (64, 1000, 1.0, 1e-4),
            (64, 1000, 1.0, 1.0),
            (1000, 1000, 1.0, 2e-6),
            (5, 1, 1.0, 0.2),
            (3, 1, 1.0, 0.9),
            (8, 1, 1.0, 0.05),
            (8, 1, 1.0, 0.15),
            (3, 3, 3.0, 0.7),
            (6, 1, 1.0, 0.55),
            (3, 2, 3.0, 1.0),
            *networks(rng, 20),
        ),
        sturdy=lambda rng: of_networks(
            (1, 8, 1.0, 0.5),
            (4, 0, 1.0, 0.5),
            (3, 7, 0.0, 0.5),
            (3, 7, 1.0, 0.0),
            (1024, 1 << 30, 5e-6, 4e-11),
        ),
        rules=[rules.without_a_word],
        smaller=lambda case: [],
        in_ranks=False,
        special=lambda case: {"n is 1"} if case.options["n"] == 1 else set(),
        diagnoses=[
            Diagnosis(
                "no-such-name",
                'The answer is one of four names: "star", "doubling", "ring" or '
                '"tree", in lower case.',
                lambda p: (
                    isinstance(name := p.seen[0][0].returned, str)
                    and name not in ("star", "doubling", "ring", "tree")
                    if p.done
                    else False
                ),
            )
        ],
        mistakes=[
            wrong(
                "latency-each-message",
                "The star's messages set off at once. What queues at the "
                "root, the latencies or the transfers?",
                starts=True,
            ),
            wrong(
                "extra-rounds",
                "Play doubling by hand with three ranks and with four: how many rounds?",
                {"extra": 0},
                {"extra": 1},
                {"even": 1},
                {"even": 2},
            ),
            wrong(
                "star-transfers",
                "How many tensors pass the root's link on the way in, one after another?",
                {"queued": lambda n: n},
                {"queued": lambda n: 1},
            ),
            wrong(
                "whole-tensor",
                "A step of the ring carries one chunk, S/n bytes: not the tensor, "
                "and not rounded down.",
                {"chunk": lambda nbytes, n: nbytes},
                {"chunk": floordiv},
            ),
            wrong(
                "ties",
                "Two ways take the same time here. Which one does the docstring ask for?",
                {"order": sorted},
                {"order": lambda times: [*times][::-1]},
            ),
            wrong(
                "one-way",
                "A time is too short: is the way back in it?",
                {"star": 1},
                {"ring": 1},
                {"tree": 1},
            ),
            wrong("slowest", "That one takes longest. The smallest time is asked for.", pick=max),
            wrong(
                "beta-is-bandwidth", "Is beta a bandwidth, or the time of one byte?", inverted=True
            ),
        ],
    )
)

# ---- 09.4 hierarchical_all_reduce ----------------------------------------------------------------

RING = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}  # times (m − 1)/m of the bytes


def between_nodes(play: Play, rank: int) -> float:
    """Bytes that this rank sends to other nodes; a collective counts as a ring of its group."""
    per_node, total = play.case.options["gpus_per_node"], 0.0
    for e in rules.trace_of(play).of(rank):
        if e.is_send and e.peer is not None:
            total += e.nbytes * (e.peer // per_node != rank // per_node)
        elif e.is_collective and rank in (ranks := rules.trace_of(play).groups.get(e.group, ())):
            m, ring = len(ranks), sorted(ranks)
            right = ring[(ring.index(rank) + 1) % m]
            times = next((k * (m - 1) / m for op, k in RING.items() if e.op.startswith(op)), 1)
            total += times * e.nbytes * (right // per_node != rank // per_node)
    return total


def share_between_nodes(play: Play) -> Iterator[Finding]:
    """At most 2(N − 1)/N · ⌈S/g⌉ for N nodes of g ranks, in whole elements."""
    per_node, given = play.case.options["gpus_per_node"], play.given(0)
    nodes = play.case.world // per_node
    most = 2 * (nodes - 1) * -(-given.numel() // per_node // nodes) * given.element_size()
    for rank in range(play.case.world):
        if (mine := between_nodes(play, rank)) > most + 1e-6:
            yield Finding(
                "bytes",
                f"rank {rank} sends {mine:g} bytes to other nodes, at most {most} are allowed",
                rank,
                mine,
                most,
            )


def strided(play: Play) -> bool:
    """The groups of g ranks in which most bytes travel join ranks of different nodes."""
    trace, per_node = rules.trace_of(play), play.case.options["gpus_per_node"]
    calls = [e for e in trace.events if e.is_collective]
    most = max((e.nbytes for e in calls), default=0)
    used = [trace.groups.get(e.group, ()) for e in calls if e.nbytes == most > 0]
    return (
        only("bytes")(play)
        and bool(used)
        and all(
            len(ranks) == per_node and len({r // per_node for r in ranks}) > 1 for ranks in used
        )
    )


def leaders_only(play: Play) -> bool:
    talk = [r for r in range(play.case.world) if between_nodes(play, r)]
    per_node = play.case.options["gpus_per_node"]
    nodes = {r // per_node for r in talk}
    return only("bytes")(play) and per_node > 1 and 1 < len(talk) == len(nodes)


def by_nodes(play: Play) -> Iterator[Finding]:
    """No collective carries data over all nodes and all ranks of each: that would be the answer."""
    trace, per_node, n = rules.trace_of(play), play.case.options["gpus_per_node"], play.case.world
    for e in trace.events if 1 < per_node < n else ():
        if e.is_collective and e.nbytes and len(trace.groups.get(e.group, ())) == n:
            yield Finding("flat", f"rank {e.rank} calls {e.op} on all ranks\n  {e.line}", e.rank)
            return


def summed(given: list[tuple], over: Any = None, by: Any = None, part: bool = False) -> None:
    """Every rank has the sum of all. The rest are mistakes."""
    n, per_node, before = len(given), given[0][1], [t.clone() for t, _ in given]
    for rank, (t, _) in enumerate(given):
        total = sum(before[r] for r in (over(rank, per_node) if over else range(n)) if r < n)
        if part:  # the rank's own share alone
            shares = torch.arange(t.numel()).view(t.shape) * per_node // t.numel()
            total = torch.where(shares == rank % per_node, total, t)
        t.copy_(total / by(n // per_node, per_node) if by else total)


def nodes_of(*rows: tuple[int, int, int], **rest: Any) -> list[Case]:
    """A case for each world, number of ranks in a node, and length."""
    return [Case(w, length, options={"gpus_per_node": g}, **rest) for w, g, length in rows]


wrong = turned(summed)
declare(
    Exercise(
        "09.4",
        "hierarchical_all_reduce",
        summed,
        inputs=lambda case, rank: (tensor(case, rank), case.options["gpus_per_node"]),
        core=lambda rng: [
            *nodes_of((4, 2, 4), (4, 2, 8), (6, 2, 12), (6, 3, 12)),
            *nodes_of((4, 2, 4 * rng.randrange(4, 30)), numbers="random"),
            *nodes_of((4, 2, 4), calls=2),
        ],
        sturdy=lambda rng: [
            *nodes_of(
                (1, 1, 3),
                (2, 1, 3),
                (2, 2, 4),
                (3, 3, 5),
                (4, 2, 0),
                (4, 2, 1),
                (4, 2, 7),
                (6, 3, 7),
                (8, 4, 5),
                (12, 4, 24),
            ),
            *hostile(4, 8, options={"gpus_per_node": 2}),
        ],
        fits=lambda case: case.world > case.options["gpus_per_node"] > 1 and divides(case),
        smaller=lambda case: (
            c for c in smaller(case) if c.world % c.options["gpus_per_node"] == 0
        ),
        special=lambda case: chunked(replace(case, world=case.options["gpus_per_node"])),
        rules=[by_nodes],
        budget=[share_between_nodes],
        diagnoses=[
            Diagnosis(
                "flat",
                "One collective joins all ranks, whatever their node. Which ranks share "
                "a node, and which are their counterparts elsewhere?",
                found("flat"),
            ),
            Diagnosis(
                "strided",
                "The groups in which most bytes travel join ranks of different nodes. "
                "Ranks of one node follow one another: r // g says which node.",
                strided,
            ),
            Diagnosis(
                "leaders-only",
                "One rank of each node carries everything to the other nodes. "
                "What if each of its neighbours carried a part of its own?",
                leaders_only,
            ),
            Diagnosis(
                "over-share",
                "Some rank sends more to other nodes than its share. How much does "
                "it still hold then, in which group and collective?",
                only("bytes"),
            ),
            Diagnosis(
                "not-together",
                "Every rank calls new_group for every group, also for those that "
                "it is not in, and all in the same order. Does yours for its own alone?",
                lambda p: found("Mismatch", "Deadlock")(p) and "new_group" in str(p.error),
            ),
            Diagnosis(
                "unequal-parts",
                "Here g does not divide the number of elements, and equal parts "
                "are wanted. What could you append to a flat copy?",
                lambda p: (
                    found("RankFailed")(p) and p.case.length % p.case.options["gpus_per_node"] > 0
                ),
            ),
        ],
        mistakes=[
            wrong(
                "node-only",
                "Each rank has its own node's sum. The nodes have not met.",
                over=lambda r, g: range(r - r % g, r - r % g + g),
            ),
            wrong(
                "across-only",
                "Each rank has the sum over its counterparts on the other nodes. Its "
                "neighbours within the node are missing.",
                over=lambda r, g: range(r % g, 999, g),
            ),
            wrong(
                "leaders-know",
                "One rank of each node has the sum. Who tells its neighbours?",
                over=lambda r, g: [r] if r % g else range(999),
            ),
            wrong(
                "not-gathered", "Each rank has one share of the sum. Who has the others?", part=True
            ),
            wrong(
                "divided",
                "The sum is asked for, and it has been divided: by the ranks of a node, "
                "by the nodes, or by both.",
                {"by": lambda nodes, g: nodes},
                {"by": lambda nodes, g: g},
                {"by": lambda nodes, g: nodes * g},
            ),
        ],
    )
)
