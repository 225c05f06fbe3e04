"""Lesson 09: a tree, recursive doubling, a hierarchy of nodes, and which is the fastest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from operator import floordiv, truediv
from typing import Any

import torch

from course_check import rules
from course_check.cases import Case, chunked, crowd, hostile, rows, tensor
from course_check.compare import same
from course_check.exercise import Finding, Play, Rule
from course_check.usual_diagnoses import found, only
from course_exercises import whole_tensors
from course_exercises.declare import apart_in_new_group, each, exercise, marked
from course_exercises.formulas import NOTHING_TO_SEND, networks, nothing_on_the_way


def size_of(play: Play) -> int:
    """Bytes of the tensor."""
    return play.given(0).nbytes


def count_rounds(play: Play) -> int:
    """How often doubling from 1 reaches all ranks."""
    return (play.case.world - 1).bit_length()


def rounds_at_most(limit: Callable[[Play], int]) -> Rule:
    """It ends, on the modelled network, as soon as so many messages one after the other could."""

    def rule(play: Play) -> Iterable[Finding]:
        took = play.run.seconds if play.run else 0.0
        one = play.case.network.seconds(size_of(play))
        if took > limit(play) * one * (1 + 1e-9):
            long = f"it takes as long as {took / one:.6g} messages one after another"
            yield Finding("rounds", f"{long}, at most {limit(play)} are allowed")

    return rule


slow = only("rounds", "sends")


def is_too_slow(play: Play) -> bool:
    """It takes too many rounds; some rank may send too many messages for that reason."""
    return slow(play) and found("rounds")(play)


MANY = {"more than 32 ranks": "there are more than 32 ranks. Which line counts on fewer?"}


def name_worlds(case: Case) -> set[str]:
    return whole_tensors.worlds_and_lengths(case) | marked({"more than 32 ranks": case.world > 32})


def draw_many(rng: random.Random, **rest: Any) -> Case:
    """More ranks than a table of rounds would have that is written down for the other cases."""
    return Case(rng.randrange(33, 100), 2, **rest)


LONG_MESSAGE = (
    "A message is longer than the tensor. In which dtype does it travel, and what else is in it?"
)

# ---- 09.1 tree_broadcast -------------------------------------------------------------------------


def spread_by_tree(
    given: list[tuple],
    adds: bool = False,
    adds_src: bool = False,
    backwards: bool = False,
    sign: int = 1,
) -> None:
    """Every rank has what src has, told round by round. The rest are mistakes."""
    n, src = len(given), given[0][1]
    tensors = [given[(sign * src + place) % n][0] for place in range(n)]  # src's first
    rounds = [1 << k for k in range((n - 1).bit_length())]
    for knows in reversed(rounds) if backwards else rounds:
        for place in range(min(knows, n - knows)):
            other, sent = tensors[place + knows], tensors[0 if adds_src else place]
            other.copy_(other + sent if adds or adds_src else sent)


def check_told_once(play: Play) -> Iterator[Finding]:
    """No rank is sent the tensor that has it: all ranks together send n − 1 of them."""
    tensors = play.case.world - 1
    mine = sum(play.trace.bytes_sent(rank) for rank in play.ranks)
    if mine > tensors * size_of(play):
        has = f"{tensors} tensors have {tensors * size_of(play)}"
        text = f"all ranks together send {mine} bytes, and {has}"
        yield Finding("told-again", text, None, mine, tensors * size_of(play))


def is_star(play: Play) -> bool:
    """The root sends to all others."""
    told = rules.sends(play, play.case.options["src"])
    return slow(play) and len(told) == play.case.world - 1


exercise(
    "09.1 tree_broadcast",
    spread_by_tree,
    inputs=lambda case, rank: (tensor(case, rank), case.options["src"]),
    core=whole_tensors.rooted_core("src"),
    sturdy=whole_tensors.rooted_sturdy("src"),
    words=MANY,
    special=name_worlds,
    regimes=lambda rng: [
        *whole_tensors.both_regimes((4, 7, 16), options={"src": 1}),
        draw_many(rng, options={"src": 1}),
    ],
    rules=[rules.no_collectives],
    budget=[
        rules.sends_at_most(count_rounds),
        rules.messages_of_at_most(size_of),
        rounds_at_most(count_rounds),
        rules.bytes_in_total_at_least(lambda p: (p.case.world - 1) * size_of(p)),
        check_told_once,
    ],
    hints={
        "long-message": LONG_MESSAGE,
        "told-again": "Ranks that have the tensor are sent it once more. Who has nothing yet, in "
        "each round?",
        "star": "The root tells everybody itself. Who else has the tensor after the first "
        "message, and could help?",
        "too-many-rounds": "The last rank gets the tensor too late. In every round all who have "
        "it should tell one more each: 1, 2, 4, 8 have it.",
        "adds": "What arrives is added to what the rank had. src's tensor is to take its place.",
        "too-early": "Some ranks pass on a tensor before src's has reached them. Who has it after "
        "the first round, who after the second?",
        "other-root": "The tree grows from another rank than src. Compute each rank's place by "
        "hand: does src get place 0?",
    },
    mistakes={
        "adds": [{"adds": True}, {"adds_src": True}],
        "too-early": {"backwards": True},
        "other-root": {"sign": -1},
    },
    diagnoses={
        "long-message": found("bytes"),
        "star": is_star,
        "too-many-rounds": is_too_slow,
    },
)

# ---- 09.2 recursive_doubling ---------------------------------------------------------------------


def make_fractions(case: Case, rank: int) -> tuple[torch.Tensor]:
    """A tensor of the case; or numbers whose sum depends on the order of adding."""
    if not case.options.get("fractions"):
        return (tensor(case, rank),)
    return (torch.rand(case.length, generator=torch.Generator().manual_seed(rank)),)


Ranks = Iterable[int]


def find_power(n: int) -> int:
    """The largest power of two up to n. Ranks from there on are extra."""
    return 1 << (n.bit_length() - 1)


def wrap_ranks(n: int, rank: int, way: int) -> Ranks:
    """As if n were the next power of two: in the last round sums overlap."""
    return [(rank + way * i) % n for i in range(1 << (n - 1).bit_length())]


def own_half(n: int, rank: int) -> Ranks:
    """The ranks whose sums meet if the last round is missing."""
    power = find_power(n)
    return [r for r in range(n) if (r ^ rank) % power < power >> 1]


def add_by_doubling(
    given: list[tuple],
    added: Callable[[int], int] = int,
    told: Callable[[int], int] = int,
    in_sum: Callable[[int, int], Ranks] | None = None,
) -> None:
    """Every rank has the sum. The rest are mistakes: of n ranks so many are ``added``, and
    ``told`` of it; or others are in a rank's sum."""
    n, before = len(given), [t.clone() for (t,) in given]
    for rank, (t,) in enumerate(given):
        ranks = in_sum(n, rank) if in_sum else range(added(n)) if rank < told(n) else [rank]
        t.copy_(sum(before[r] for r in ranks))


def check_same_bits(play: Play) -> Iterator[Finding]:
    """Every rank has the same sum, to the last bit."""
    for by_rank in play.seen if not play.wrong else []:
        for rank, seen in enumerate(by_rank):
            if not same(seen.args, by_rank[0].args):
                text = f"rank {rank}'s sum is not rank 0's to the last bit"
                yield Finding("bits-differ", text, rank)


exercise(
    "09.2 recursive_doubling",
    add_by_doubling,
    inputs=make_fractions,
    tolerance=1e-6,
    core=lambda rng: [
        *rows("", (2, 1), (2, 3), (3, 1), (4, 1), (5, 3)),
        Case(rng.choice((3, 5)), rng.randrange(9, 99), numbers="random"),
        Case(3, 3, calls=2),
        *rows("", (3, 3), (4, 64), (5, 64), options={"fractions": True}),
    ],
    sturdy=lambda rng: [
        *rows("", (1, 3), (3, 0), (6, 2), (7, 2), (8, 2), (crowd(rng), 3)),
        *hostile(3, 6, layouts=(2, 4)),
    ],
    words=MANY,
    special=name_worlds,
    rules=[rules.no_collectives, check_same_bits],
    regimes=lambda rng: [*whole_tensors.both_regimes((3, 4, 7, 16)), draw_many(rng)],
    budget=[
        rules.messages_of_at_most(size_of),
        rules.sends_at_most(lambda p: count_rounds(p) + 1),
        rounds_at_most(lambda p: count_rounds(p) + 1),
        rules.bytes_in_total_at_least(lambda p: 2 * (p.case.world - 1) * size_of(p)),
    ],
    hints={
        "long-message": LONG_MESSAGE,
        "bits-differ": "Every rank has the sum, but its last bits differ from rank to rank. "
        "Which rank adds up in which order?",
        "too-many-rounds": "It takes more rounds than doubling. Do both partners send at the same "
        "time, and is everybody busy in each round?",
        "left-out": "Some ranks are in nobody's sum. Let each of them first hand its tensor to "
        "one that adds it.",
        "not-told": "The sum is right, but some ranks do not have it: those that handed their "
        "tensor over at the beginning wait for an answer.",
        "twice": "Some ranks are in the sum twice. Where n is no power of two, whose sums overlap "
        "in the last round?",
        "round-short": "The two halves never meet: a round is missing.",
    },
    mistakes={
        "left-out": each(added=[find_power], told=(find_power, int)),
        "not-told": {"told": find_power},
        "twice": [{"in_sum": partial(wrap_ranks, way=way)} for way in (1, -1)],
        "round-short": {"in_sum": own_half},
    },
    diagnoses={
        "long-message": found("bytes"),
        "too-many-rounds": is_too_slow,
    },
)

# ---- 09.3 fastest --------------------------------------------------------------------------------


NAMES = "star", "doubling", "ring", "tree"


def pick_fastest(
    given: list[tuple],
    latencies_queue: bool = False,
    transfers: Callable[[int], int] = lambda n: n - 1,
    extra_rounds: int = 2,
    even_rounds: int = 0,
    chunk: Callable = truediv,
    among: Callable[[Iterable[str]], Iterable[str]] = list,
    pick: Callable = min,
) -> list[str]:
    """The name of the smallest time, the first one where several are. The rest are mistakes."""
    [(n, nbytes, alpha, beta)] = given
    if n == 1:
        return ["star"]
    low, high, whole = n.bit_length() - 1, (n - 1).bit_length(), nbytes * beta
    rounds = low + (extra_rounds if low < high else even_rounds)
    times = {
        "star": 2 * ((n - 1 if latencies_queue else 1) * alpha + transfers(n) * whole),
        "doubling": rounds * (alpha + whole),
        "ring": 2 * (n - 1) * (alpha + chunk(nbytes, n) * beta),
        "tree": 2 * high * (alpha + whole),
    }
    return [pick(among(times), key=times.__getitem__)]


def networks_of(*rows: tuple) -> list[Case]:
    names = ("n", "nbytes", "alpha", "beta")
    return [Case(1, options=dict(zip(names, row, strict=True))) for row in rows]


exercise(
    "09.3 fastest",
    pick_fastest,
    inputs=lambda case, rank: tuple(case.options.values()),
    core=lambda rng: [
        *networks_of((4, 2, 1.0, 1.0), (64, 8, 1.0, 1e-6), (64, 1000, 1.0, 1e-4)),
        *networks_of((5, 1, 1.0, 0.2), (64, 1000, 1.0, 1.0), (1000, 1000, 1.0, 2e-6)),
        *networks_of((3, 1, 1.0, 0.9), (3, 3, 3.0, 0.7), (8, 1, 1.0, 0.05), (8, 1, 1.0, 0.15)),
        *networks_of((3, 2, 3.0, 1.0), (6, 1, 1.0, 0.55), *sorted(networks(rng, 20))),
    ],
    sturdy=lambda rng: networks_of(*sorted(nothing_on_the_way(rng)), (1024, 1 << 30, 5e-6, 4e-11)),
    rules=[rules.without_a_word],
    in_ranks=False,
    words=NOTHING_TO_SEND,
    special=lambda case: {"n is 1"} if case.options["n"] == 1 else set(),
    hints={
        "no-such-name": 'The answer is one of four names: "star", "doubling", "ring" or "tree", '
        "in lower case.",
        "latency-each-message": "The star's messages set off at once. What queues at the root, "
        "the latencies or the transfers?",
        "extra-rounds": "Play doubling by hand with three ranks and with four: how many rounds?",
        "star-transfers": "How many tensors pass the root's link on the way in, one after another?",
        "whole-tensor": "A step of the ring carries one chunk, S/n bytes: not the tensor, and not "
        "rounded down.",
        "ties": "Two ways take the same time here. Which one does the docstring ask for?",
        "slowest": "That one takes longest. The smallest time is asked for.",
    },
    mistakes={
        "latency-each-message": {"latencies_queue": True},
        "extra-rounds": each(extra_rounds=(0, 1)) + each(even_rounds=(1, 2)),
        "star-transfers": [{"transfers": lambda n: n}, {"transfers": lambda n: 1}],
        "whole-tensor": [{"chunk": lambda nbytes, n: nbytes}, {"chunk": floordiv}],
        "ties": [{"among": sorted}, {"among": lambda times: [*times][::-1]}],
        "slowest": {"pick": max},
    },
    diagnoses={
        "no-such-name": lambda p: any(isinstance(n, str) and n not in NAMES for n in p.returned),
    },
)

# ---- 09.4 hierarchical_all_reduce ----------------------------------------------------------------

G = "gpus_per_node"  # the name of an option
RING = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}  # times (m − 1)/m of the bytes


def count_between(play: Play, rank: int) -> float:
    """Bytes that this rank sends to other nodes; a collective counts as a ring of its group."""
    trace, node, total = play.trace, rank // play.case.options[G], 0.0
    for e in trace.of(rank):
        ring = sorted(trace.groups.get(e.group, ()))
        to, times = e.peer, 1.0
        if e.is_collective and rank in ring:
            to = ring[(ring.index(rank) + 1) % len(ring)]
            share = (len(ring) - 1) / len(ring)
            times = next((k * share for op, k in RING.items() if e.op.startswith(op)), 1.0)
        elif not e.is_send:
            continue
        if to is not None and to // play.case.options[G] != node:
            total += times * e.nbytes
    return total


def check_share(play: Play) -> Iterator[Finding]:
    """At most 2(N − 1)/N · ⌈S/g⌉ for N nodes of g ranks, in whole elements."""
    given, nodes = play.given(0), play.case.world // play.case.options[G]
    share = -(-given.numel() // play.case.options[G] // nodes) * given.element_size()
    most = 2 * (nodes - 1) * share
    for rank in play.ranks:
        if (mine := count_between(play, rank)) > most + 1e-6:
            text = f"rank {rank} sends {mine:g} bytes to other nodes, at most {most} are allowed"
            yield Finding("bytes", text, rank, mine, most)


def count_nodes(play: Play, ranks: Iterable[int]) -> int:
    """On how many nodes these ranks are."""
    return len({rank // play.case.options[G] for rank in ranks})


def are_strided(play: Play) -> bool:
    """The groups of g ranks in which most bytes travel join ranks of different nodes."""
    trace = play.trace
    calls = [e for e in trace.events if e.is_collective]
    most = max((e.nbytes for e in calls), default=0)
    used = [trace.groups.get(e.group, ()) for e in calls if e.nbytes == most > 0]
    across = [len(ranks) == play.case.options[G] and count_nodes(play, ranks) > 1 for ranks in used]
    return only("bytes")(play) and bool(across) and all(across)


def send_leaders(play: Play) -> bool:
    """Of each node one rank sends to others."""
    leaders = [rank for rank in play.ranks if count_between(play, rank)]
    several = play.case.options[G] > 1
    return only("bytes")(play) and several and 1 < len(leaders) == count_nodes(play, leaders)


def check_by_nodes(play: Play) -> Iterator[Finding]:
    """No collective carries data over all nodes and all ranks of each: that would be the answer."""
    trace, n = play.trace, play.case.world
    for e in trace.events if 1 < play.case.options[G] < n else ():
        if e.is_collective and e.nbytes and len(trace.groups.get(e.group, ())) == n:
            yield Finding("flat", f"rank {e.rank} calls {e.op} on all ranks\n  {e.line}", e.rank)
            return


InSum = Callable[[int, int, int], Ranks]  # of a rank, the ranks in a node, the world


def sum_by_nodes(
    given: list[tuple],
    in_sum: InSum = lambda rank, g, n: range(n),
    divisor: Callable[[int, int], int] | None = None,
    own_share_alone: bool = False,
) -> None:
    """Every rank has the sum of all. The rest are mistakes."""
    n, g, before = len(given), given[0][1], [t.clone() for t, _ in given]
    for rank, (t, _) in enumerate(given):
        total = sum(before[r] for r in in_sum(rank, g, n))
        if divisor:
            total = total / divisor(n, g)
        if own_share_alone:
            share_of = torch.arange(t.numel()).view(t.shape) * g // t.numel()
            total = torch.where(share_of == rank % g, total, t)
        t.copy_(total)


exercise(
    "09.4 hierarchical_all_reduce",
    sum_by_nodes,
    inputs=lambda case, rank: (tensor(case, rank), case.options[G]),
    core=lambda rng: [
        *rows(G, (4, 4, 2), (4, 8, 2), (6, 12, 2), (6, 12, 3)),
        *rows(G, (4, 4 * rng.randrange(4, 30), 2), numbers="random"),
        *rows(G, (4, 4, 2), calls=2),
    ],
    sturdy=lambda rng: [
        *rows(G, (1, 3, 1), (2, 3, 1), (2, 4, 2), (3, 4, 3)),
        *rows(G, (4, 0, 2), (4, 1, 2), (4, 7, 2), (6, 7, 3), (8, 5, 4), (12, 24, 4)),
        *hostile(4, 8, options={G: 2}),
    ],
    special=lambda case: chunked(replace(case, world=case.options[G])),
    rules=[check_by_nodes],
    budget=[check_share],
    hints={
        "flat": "One collective joins all ranks, whatever their node. Which ranks share a node, "
        "and which are their counterparts elsewhere?",
        "strided": "The groups in which most bytes travel join ranks of different nodes. Ranks of "
        "one node follow one another: r // g says which node.",
        "leaders-only": "One rank of each node carries everything to the other nodes. What if "
        "each rank of the node carried a part?",
        "over-share": "Some rank sends more to other nodes than its share. How much does it still "
        "hold then, in which group and collective?",
        "not-together": "Every rank calls new_group for every group, even for those that it is "
        "not in, and all in the same order. Does your answer make only its own?",
        "unequal-parts": "Here g does not divide the number of elements, and equal parts are "
        "wanted. What could you append to a flat copy?",
        "node-only": "Each rank has its own node's sum. The nodes have not met.",
        "across-only": "Each rank has the sum over its counterparts on the other nodes. Its "
        "neighbours within the node are missing.",
        "leaders-know": "One rank of each node has the sum. Who tells its neighbours?",
        "not-gathered": "Each rank has one share of the sum. Who has the others?",
        "divided": "The sum is asked for, but it has been divided: by the ranks of a node, by "
        "the nodes, or by both.",
    },
    mistakes={
        "node-only": {"in_sum": lambda rank, g, n: range(rank - rank % g, rank - rank % g + g)},
        "across-only": {"in_sum": lambda rank, g, n: range(rank % g, n, g)},
        "leaders-know": {"in_sum": lambda rank, g, n: [rank] if rank % g else range(n)},
        "not-gathered": {"own_share_alone": True},
        "divided": each(divisor=(lambda n, g: n // g, lambda n, g: g, lambda n, g: n)),
    },
    diagnoses={
        "strided": are_strided,
        "leaders-only": send_leaders,
        "over-share": only("bytes"),
        "not-together": apart_in_new_group,
        "unequal-parts": lambda p: found("RankFailed")(p) and p.case.length % p.case.options[G] > 0,
    },
)
