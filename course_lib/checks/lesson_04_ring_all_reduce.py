"""Lesson 04: the sum of everybody's tensor, along a ring, and what it costs."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.checks.cases import (
    ALL_HOLD,
    HELD,
    LONG,
    SIGNED,
    SPECIAL,
    SPREAD,
    Case,
    cases,
    contributions,
    crowd,
    late_calls,
    tensor,
)
from course_lib.checks.compare import ANYTHING, same
from course_lib.checks.diagnoses import (
    IN_A_COPY,
    REMEMBERS,
    OfPlay,
    When,
    all_wait_in,
    alone,
    any_of,
    both,
    every,
    found,
    hazard,
    only_where,
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
from course_lib.checks.formulas import formula, mistake, networks
from course_lib.checks.rules import (
    bytes_at_most,
    bytes_in_total_at_least,
    hears_of,
    messages_of_at_most,
    no_collectives,
    peers,
    sends,
    sends_at_most,
    trace_of,
)

Table = list[list[dict[tuple[int, int], int] | None]]  # [rank][element]: who is in this sum


# ---- what is in a sum ------------------------------------------------------------------------


def table(play: Play) -> Table:
    """For a play with codes for numbers: the contributions to every element on every rank."""
    return [[contributions(play.case, v) for v in play.left(r).flatten().tolist()]
            for r in range(play.case.world)]  # fmt: skip


def coded(e: Evidence) -> list[Play]:
    """The plays of at least three ranks that came to an end with codes for numbers."""
    return [p for p in e.plays if p.case.numbers == "codes" and p.case.world > 2 and p.done]


def complete(entry: dict[tuple[int, int], int] | None, world: int, element: int) -> bool:
    return entry == {(r, element): 1 for r in range(world)}


def on_table(test: Callable[[list, int], bool]) -> When:
    """The test holds for every row of every coded play; there is one, and something is wrong."""

    def when(e: Evidence) -> bool:
        plays = coded(e)
        if not plays or not e.failed or not all(p.done for p in e.failed):
            return False
        tables = [(table(p), p.case.world) for p in plays]
        rows = [(row, world) for rows, world in tables for row in rows]
        right = all(complete(x, w, i) for row, w in rows for i, x in enumerate(row))
        return not right and all(None not in row and test(row, w) for row, w in rows)

    return when


def own_again(row: list, world: int) -> bool:
    """Every sum that is wrong has one rank in it, more than once: nothing that came was added."""
    wrong = [x for i, x in enumerate(row) if not complete(x, world, i)]
    return len(wrong) == len(row) and all(
        len({rank for rank, _ in x}) == 1 and sum(x.values()) > 1 for x in wrong)  # fmt: skip


def twice(row: list, world: int) -> bool:
    """Everybody is in every sum, at its place, and somebody more than once in some."""
    return all(set(x) == {(r, i) for r in range(world)} for i, x in enumerate(row)) and any(
        times > 1 for x in row for times in x.values())  # fmt: skip


def partial(entry: dict, element: int) -> bool:
    """Some ranks are in it, once each; others are missing."""
    return bool(entry) and all(i == element and t == 1 for (_, i), t in entry.items())


def one_stale(row: list, world: int) -> bool:
    """All sums of this rank are complete but one chunk's, which is partial."""
    wrong = [i for i, x in enumerate(row) if not complete(x, world, i)]
    return len(wrong) * world == len(row) and all(partial(row[i], i) for i in wrong)


def never_complete(row: list, world: int) -> bool:
    return all(partial(x, i) and not complete(x, world, i) for i, x in enumerate(row))


def turned(row: list, world: int) -> bool:
    """Not everywhere the same ranks are in a sum: they change from chunk to chunk."""
    return len({frozenset(rank for rank, _ in x) for x in row}) > 1


def alike_everywhere(e: Evidence) -> bool:
    return all(torch.equal(p.left(0), p.left(r))
               for p in coded(e) for r in range(p.case.world))  # fmt: skip


# ---- ring_all_reduce -------------------------------------------------------------------------


def summed(play: Play, call: int) -> list[Seen]:
    """The sum in one process, in every rank's own layout."""
    total = sum(args[0].clone() for args in play.inputs[call])
    return [Seen(None, (total,)) for _ in play.inputs[call]]


def ring_core(rng: random.Random) -> list[Case]:
    drawn = [Case(w, w * rng.randrange(4, 120), numbers="random", seed=w) for w in (2, 3, 4, 5)]
    codes = [Case(2, 2, numbers="codes"), Case(2, 4, numbers="codes"), Case(3, 3, numbers="codes")]
    plain = [c for w in range(2, 6) for c in cases([w], [w, 2 * w])]
    return plain + codes + drawn + [Case(3, 6, numbers="random", seed=9, calls=2)]


def ring_sturdy(rng: random.Random) -> list[Case]:
    uneven = [c for w in range(2, 6) for c in cases([w], [0, 1, w - 1, w + 1, 3 * w - 1])]
    uneven += [Case(w, rng.randrange(20, 300), numbers="random", seed=w) for w in (3, 4, 5, 7)]
    kinds = [Case(3, n, layout=s) for s in ("strided", "transposed", "matrix") for n in (6, 10)]
    kinds += [Case(3, 7, dtype, numbers="random") for dtype in ("float64", "int32", "int64")]
    kinds += [Case(3, 8, dtype, numbers="large") for dtype in ("float64", "int32", "int64")]
    kinds += [Case(4, 8, layout="mixed"), Case(3, 6, calls=2, longer=3), Case(crowd(rng), 25)]
    kinds += [*late_calls(3, 1), Case(2, rng.randrange(*LONG))]
    kinds += [Case(3, 6, options={HELD: what}) for what in SPECIAL]
    kinds += [Case(4, 9, dtype, numbers="random") for dtype in ("float16", "bfloat16")]
    return cases([1, 8], [0, 1, 8, 19]) + uneven + kinds + [Case(2, 1, layout="scalar"),
                                                           Case(4, 1, layout="scalar")]  # fmt: skip


def one_way_round(play: Play) -> Iterator[Finding]:
    """Messages go to the one neighbour, on every rank the same one; so they come from the other."""
    world = play.case.world
    right = {r: {(r + 1) % world} for r in range(world)}
    left = {r: {(r - 1) % world} for r in range(world)}
    if any(all(peers(play, r) <= way[r] for r in range(world)) for way in (right, left)):
        return
    for rank in range(world):
        others = sorted(peers(play, rank) - right[rank])
        if others:
            text = f"rank {rank} sends to {', '.join(map(str, sorted(peers(play, rank))))}"
            yield Finding("peers", f"{text}; to the right it is {(rank + 1) % world} alone", rank,
                          sorted(peers(play, rank)), sorted(right[rank]))  # fmt: skip


def in_equal_chunks(case: Case) -> bool:
    return case.world > 1 and case.length > 0 and case.length % case.world == 0


def itemsize(play: Play) -> int:
    return play.given(0).element_size()


def chunk_bytes(play: Play) -> int:
    """The largest of n chunks whose sizes differ by at most one element."""
    return -(-play.case.length // play.case.world) * itemsize(play)


def ring_bytes(play: Play) -> int:
    """2(n−1) chunks, each as large as the largest: Patarasuk and Yuan, 2009."""
    return 2 * (play.case.world - 1) * chunk_bytes(play)


def least_bytes(play: Play) -> int:
    """Every element is sent n−1 times to be summed and n−1 times to be known."""
    return 2 * (play.case.world - 1) * play.case.length * itemsize(play)


def of_budget(e: Evidence) -> bool:
    """It is the pattern of messages that fails, whatever the values are."""
    return e.level == "budget"


def large(e: Evidence) -> list[Play]:
    """Plays in which a pattern of messages can be told from a ring."""
    return [p for p in e.plays if p.case.world > 3 and p.case.length >= p.case.world]


def no_neighbour(p: Play) -> bool:
    """Somebody sends to a rank that is not next to it."""
    return found("peers")(p) and not along_the_ring(p)


def everyone_to_everyone(e: Evidence) -> bool:
    return bool(large(e)) and all(len(peers(p, r)) == p.case.world - 1
                                  for p in large(e) for r in range(p.case.world))  # fmt: skip


def through_a_root(e: Evidence) -> bool:
    """One rank is an end of every message, and everybody else sends to it."""
    return bool(large(e)) and all(any(
        all(root in (m.src, m.dst) for m in trace_of(p).messages)
        and all(root in peers(p, r) for r in range(p.case.world) if r != root)
        for root in range(p.case.world)) for p in large(e))  # fmt: skip


def along_the_ring(p: Play) -> bool:
    n = p.case.world
    return all(peers(p, r) <= {(r + 1) % n, (r - 1) % n} for r in range(n))


def whole_tensors(e: Evidence) -> bool:
    """Every message between neighbours is as long as the tensor."""
    return bool(large(e)) and all(along_the_ring(p) and trace_of(p).messages and all(
        m.nbytes >= p.case.length * itemsize(p) for m in trace_of(p).messages)
        for p in large(e))  # fmt: skip


def once_round(e: Evidence) -> bool:
    return all(len(sends(p, r)) == p.case.world - 1 for p in large(e) for r in range(p.case.world))


def divided(e: Evidence) -> bool:
    """Every rank has the sum divided by the number of ranks."""
    return every(lambda p: p.done and p.case.world > 1 and all(torch.equal(
        p.left(r) * p.case.world, sum(a[0].clone() for a in p.inputs[0])
    ) for r in range(p.case.world)))(e)  # fmt: skip


def tail_untouched(play: Play) -> bool:
    """The first n·⌊length/n⌋ elements have the sum, and the rest what it was."""
    n, length = play.case.world, play.case.length
    even = n * (length // n)
    want = sum(a[0].clone() for a in play.inputs[0]).flatten()
    if not play.done or length == even:
        return False
    return all(torch.equal(play.left(r).flatten()[:even], want[:even]) and torch.equal(
        play.left(r).flatten()[even:], play.given(r).flatten()[even:])
        for r in range(n))  # fmt: skip


def fewer_chunks(play: Play) -> bool:
    """torch.chunk, which rounds the size up, would make fewer chunks than there are ranks."""
    return len(torch.empty(play.case.length).chunk(play.case.world)) < play.case.world


def untouched(play: Play) -> bool:
    return play.done and all(same(play.left(r), play.given(r))
                             for r in range(play.case.world))  # fmt: skip


def talked(e: Evidence) -> bool:
    """Messages arrived: what came could have been used."""
    return all(any(m.recv for m in trace_of(p).messages) for p in coded(e))


SEND_FIRST = Diagnosis(
    "send-first", "Everyone sends and nobody takes: each send waits for its recv, all the way "
    "round. Which call starts a message without waiting for it, and where does its wait belong?",
    every(all_wait_in("send")),
)  # fmt: skip
IN_FLIGHT = Diagnosis(
    "in-flight", "A buffer is written while a message is on its way from it, or into it: before "
    "wait() has returned. When may it be written again?", some(hazard("written before wait")),
)  # fmt: skip

declare(Exercise(
    "04.1", "ring_all_reduce",
    inputs=lambda case, rank: (tensor(case, rank),),
    expected=summed,
    core=ring_core,
    sturdy=ring_sturdy,
    fits=in_equal_chunks,
    budget=[no_collectives, one_way_round, sends_at_most(lambda p: 2 * (p.case.world - 1)),
            bytes_at_most(ring_bytes), messages_of_at_most(chunk_bytes),
            bytes_in_total_at_least(least_bytes)],
    diagnoses=[
        SEND_FIRST, IN_FLIGHT,
        Diagnosis("collective", "torch made this sum. The exercise is what is inside of that "
                  "call: send and recv.", some(found("collective"))),
        Diagnosis("wrong-buffer", "What arrives is never added: each rank adds something of its "
                  "own again. Which tensor did recv fill?",
                  both(on_table(own_again), talked)),
        Diagnosis("added-twice", "Everybody is in the sum, and somebody more than once. How many "
                  "steps does the adding half take, and what does the second half do with what "
                  "arrives?", on_table(twice)),
        Diagnosis("gather-short", "All chunks but one are right on each rank: the last one has "
                  "not arrived. How many steps does it take to see n−1 chunks go by?",
                  on_table(one_stale)),
        Diagnosis("unfinished-sums", "No chunk that goes round in the second half is a finished "
                  "sum. Either the first half does not add what arrives, or adds it to another "
                  "chunk than the one that came, or stops too early; or the second half begins "
                  "with the wrong chunk. After the first half, which chunk is complete on this "
                  "rank?",
                  both(on_table(never_complete), on_table(turned),
                       alike_everywhere)),
        Diagnosis("divides", "This is the mean; the sum is asked for.", divided),
        Diagnosis("another-tensor", "On every rank the tensor is as it was before the call. "
                  "Whatever has been made, the caller's own tensor was never written.",
                  both(lambda e: e.level == "core", every(untouched))),
        Diagnosis("remainder-dropped", "The last elements are as they were: the length is no "
                  "multiple of the number of ranks, and the chunks do not cover it.",
                  every(tail_untouched)),
        Diagnosis("fewer-chunks", "For some lengths the tensor is cut into fewer chunks than there "
                  "are ranks: count them for 4 ranks and length 5.",
                  both(only_where(fewer_chunks), some(lambda p: p.case.length > p.case.world))),
        Diagnosis("short-tensor", "With fewer elements than ranks some chunks are empty, and "
                  "they are chunks all the same.",
                  only_where(lambda p: p.case.length < p.case.world > 1)),
        Diagnosis("alone", "A rank that is alone has the sum already, and nobody to send to.",
                  only_where(alone)),
        Diagnosis("copy-not-written-back", IN_A_COPY,
                  both(only_where(lambda p: p.case.layout in SPREAD),
                       every(lambda p: p.case.layout == "mixed" or untouched(p)))),
        Diagnosis("whole-tensor-ring", "It goes round the ring with the whole tensor in every "
                  "message. What if each message were one n-th of it?",
                  both(of_budget, whole_tensors, once_round)),
        Diagnosis("whole-tensor-each-way", "One whole tensor after the other travels there and "
                  "back, while most ranks wait. What if everybody sent a part at each step?",
                  both(of_budget, whole_tensors)),
        Diagnosis("gather-to-root", "One rank hears everybody and tells everybody: its link "
                  "carries n−1 tensors while the others idle.", both(of_budget, through_a_root)),
        Diagnosis("everyone-to-everyone", "Everyone sends to everyone. On a ring each rank knows "
                  "one neighbour to send to and one to hear.",
                  both(of_budget, everyone_to_everyone)),
        Diagnosis("not-a-neighbour", "Some messages go to a rank that is not the next one. On this "
                  "ring rank r knows r+1 and r−1, and nobody else.",
                  both(of_budget, every(no_neighbour))),
        Diagnosis("both-ways", "Messages go round both ways. On this ring a rank sends to one of "
                  "its neighbours, every time the same one, and hears only the other.",
                  both(of_budget, some(found("peers")), every(along_the_ring))),
        Diagnosis("over-budget", "A rank sends more than 2(n−1) messages of ⌈length/n⌉ elements: "
                  "more of them, or longer ones. Go through those of one rank: how many are there, "
                  "and how long is the longest?",
                  both(of_budget, every(found("sends", "bytes")))),
    ],
))  # fmt: skip


# ---- the two halves --------------------------------------------------------------------------


LONGER = "the longer chunks"


def split(case: Case, rank: int) -> list[Tensor]:
    """The rank's numbers as n chunks, each a tensor of its own; sizes differ by at most one, and
    the larger ones come first, if the case does not say otherwise."""
    sizes = [len(chunk) for chunk in torch.empty(case.length).tensor_split(case.world)]
    sizes = sizes[::-1] if LONGER in case.options else sizes
    return [chunk.clone() for chunk in tensor(case, rank).split(sizes)]


# Where there is something in every chunk, every rank hears of every other.
of_everybody = hears_of(lambda p, r: range(p.case.world) if p.case.length >= p.case.world else [])


def owner_of(play: Play, rank: int) -> int | None:
    index = play.got(rank).returned
    fine = isinstance(index, int) and not isinstance(index, bool) and 0 <= index < play.case.world
    return index if fine else None


def scattered(play: Play, call: int) -> list[Seen]:
    """The chunk that a rank says it owns is the sum; the others may hold anything."""
    total = [sum(chunk.clone() for chunk in column)
             for column in zip(*(args[0] for args in play.inputs[call]), strict=True)]  # fmt: skip
    out = []
    for rank, seen in enumerate(play.seen[call]):
        chunks, index = [ANYTHING] * len(total), seen.returned
        valid = isinstance(index, int) and not isinstance(index, bool)
        if valid and 0 <= index < len(total):
            chunks[index] = total[index]
        full = [same(*pair) for pair in zip(play.left(rank, call), total, strict=False)]
        meant = full.index(True) if True in full else rank
        out.append(Seen(ANYTHING if valid else meant, (chunks,)))
    return out


def distinct_owners(play: Play) -> Iterator[Finding]:
    """Every rank owns one chunk, and every chunk has an owner."""
    claimed: dict[object, int] = {}
    for rank in range(play.case.world):
        index = play.got(rank).returned
        if isinstance(index, int) and not 0 <= index < play.case.world:
            yield Finding("owner", f"rank {rank} says that it owns chunk {index}; there are chunks "
                          f"0 to {play.case.world - 1}", rank)  # fmt: skip
        elif isinstance(index, int) and claimed.setdefault(index, rank) != rank:
            text = f"ranks {claimed[index]} and {rank} both say that they own chunk {index}"
            yield Finding("owner", text, rank)


def owned_chunk(play: Play, rank: int) -> Tensor:
    chunks = dict(enumerate(play.left(rank)))  # fewer than there were, where some were taken out
    return chunks.get(owner_of(play, rank) or 0, torch.empty(0))


def owned_entries(e: Evidence) -> list[tuple[Counter | None, int, int, int]]:
    """(contributions, world, element, rank) for the chunk that each rank says it owns."""
    out = []
    for p in coded(e):
        for r in range(p.case.world):
            for v in owned_chunk(p, r).tolist():
                out.append((contributions(p.case, v), p.case.world, owner_of(p, r) or 0, r))
    return out


def owned_are(test: Callable[[dict, int, int, int], bool]) -> When:
    def when(e: Evidence) -> bool:
        known = all(owner_of(p, r) is not None for p in coded(e) for r in range(p.case.world))
        entries = owned_entries(e) if known and all(p.done for p in e.failed) else []
        return bool(entries) and all(x is not None and test(x, w, i, r) for x, w, i, r in entries)

    return when


def complete_elsewhere(e: Evidence) -> bool:
    """Each rank has one finished sum, and returns the index of another chunk."""

    def holds(p: Play, r: int) -> bool:
        args = p.got(r).args
        if args is None or owner_of(p, r) is None:
            return False
        finished = [i for i, c in enumerate(args[0])
                    if all(complete(contributions(p.case, v), p.case.world, i)
                           for v in c.tolist())]  # fmt: skip
        return len(finished) == 1 and p.got(r).returned not in finished

    plays = coded(e)
    return bool(plays) and all(holds(p, r) for p in plays for r in range(p.case.world))


def halves_core(rng: random.Random) -> list[Case]:
    plain = [c for w in range(2, 6) for c in cases([w], [w, 3 * w])]
    drawn = [Case(w, w * rng.randrange(4, 90), numbers="random", seed=w) for w in (3, 4, 5)]
    return [*plain, Case(3, 3, numbers="codes"), *drawn, Case(3, 6, seed=9, calls=3)]


def halves_sturdy(rng: random.Random) -> list[Case]:
    uneven = cases(range(2, 6), [0, 1, 7, rng.randrange(20, 99)])
    kinds = [Case(3, 7, dtype, numbers="random") for dtype in ("float64", "int32", "int64")]
    kinds += [Case(2, 6, dtype, numbers="large") for dtype in ("float64", "int64")]
    kinds += [Case(3, 6, calls=2, longer=3), *(Case(3, 6, options={HELD: w}) for w in SPECIAL)]
    late = [*late_calls(3, 1), *late_calls(4, 2)]
    late += [Case(w, n, options={LONGER: "last"}) for w, n in ((2, 1), (3, 2), (4, 6))]
    return [*cases([1, 8], [0, 3, 16]), Case(crowd(rng), 25), *uneven, *kinds, *late]


declare(Exercise(
    "04.2", "ring_reduce_scatter",
    inputs=lambda case, rank: (split(case, rank),),
    expected=scattered,
    core=halves_core,
    sturdy=halves_sturdy,
    fits=in_equal_chunks,
    rules=[no_collectives, distinct_owners, of_everybody],
    diagnoses=[
        SEND_FIRST, IN_FLIGHT,
        Diagnosis("wrong-buffer", "What arrives is never added: each rank adds something of its "
                  "own again. Which tensor did recv fill?",
                  both(talked, owned_are(lambda x, w, i, r: len({s for s, _ in x}) == 1
                                         and sum(x.values()) > 1))),
        Diagnosis("added-twice", "Everybody is in the sum, and somebody more than once.",
                  owned_are(lambda x, w, i, r: set(x) == {(k, i) for k in range(w)}
                            and max(x.values()) > 1)),
        Diagnosis("wrong-index", "One chunk is complete on each rank, and another one's index is "
                  "returned. Follow the last message: which chunk did it carry?",
                  both(complete_elsewhere, every(lambda p: p.done))),
        Diagnosis("owners", "Two ranks name the same chunk, or one names a chunk that is not "
                  "there. Each rank has to finish a chunk of its own, and there are n of each.",
                  every(found("owner"))),
        Diagnosis("scatter-short", "In the chunk that is returned somebody is missing. A chunk "
                  "passes n−1 links to meet everyone, and takes along what it meets.",
                  owned_are(lambda x, w, i, r: partial(x, i) and len(x) < w)),
        REMEMBERS,
        Diagnosis("short-tensor", "Chunks may be empty, and are chunks all the same.",
                  only_where(lambda p: p.case.length < p.case.world > 1)),
        Diagnosis("alone", "A rank that is alone owns its only chunk already.",
                  only_where(alone)),
    ],
))  # fmt: skip


def before_gather(case: Case, rank: int) -> tuple[list[Tensor], int]:
    """Chunks of which number (rank + c) mod n is finished; in all the others something is left."""
    owned = (rank + case.options["c"]) % case.world
    finished = split(case, 0)
    left = case.options.get("left", -1)
    return [c if i == owned else torch.full_like(c, left) for i, c in enumerate(finished)], owned


def gathered(play: Play, call: int) -> list[Seen]:
    """Every rank has every chunk as its owner had it."""
    chunks = finished_chunks(play, call)
    return [Seen(None, (chunks, args[1])) for args in play.inputs[call]]


def finished_chunks(play: Play, call: int = 0) -> list[Tensor]:
    finished: dict[int, Tensor] = {args[1]: args[0][args[1]] for args in play.inputs[call]}
    return [finished[i] for i in range(play.case.world)]


def right_chunks(play: Play, rank: int) -> list[bool]:
    return [same(a, b) for a, b in zip(play.left(rank), finished_chunks(play), strict=True)]


def one_left(play: Play, rank: int) -> bool:
    """All chunks but one have come, and that one is as it was."""
    wrong = [i for i, right in enumerate(right_chunks(play, rank)) if not right]
    return len(wrong) == 1 and same(play.left(rank)[wrong[0]], play.given(rank)[wrong[0]])


def values_only(play: Play) -> bool:
    return play.done and play.kinds() <= {"left", "no message"}


def added_up(play: Play) -> bool:
    """Each chunk has −1 added to it for every rank that it has passed, as left-over chunks do."""
    n, c = play.case.world, play.case.options["c"]
    right_ones = finished_chunks(play)
    for rank in range(n):
        for i, (got, right) in enumerate(zip(play.left(rank), right_ones, strict=True)):
            passed = (rank - (i - c)) % n
            if not any(
                same(got, right + k * torch.full_like(right, -1)) for k in {passed, min(passed, 1)}
            ):
                return False
    return True


def fixed_owner(e: Evidence) -> bool:
    """It is right for one c, the same in all worlds, and for no other: core has several c."""
    return e.level == "core" and any_of(*(only_where(owned_not_at(k)) for k in (0, 1)))(e)


def owned_not_at(k: int) -> OfPlay:
    return lambda play: play.case.options["c"] % play.case.world != k % play.case.world


def gather_core(rng: random.Random) -> list[Case]:
    plain = [Case(w, n * w, options={"c": c}) for w in range(2, 6) for n in (1, 2)
             for c in range(w) if c < 3]  # fmt: skip
    return plain + [Case(w, w * rng.randrange(4, 90), numbers="random", seed=w, options={
        "c": rng.randrange(w)}) for w in (3, 4, 5)]  # fmt: skip


def gather_sturdy(rng: random.Random) -> list[Case]:
    worlds = ((1, 0), (8, 0), (8, 5), (crowd(rng), 3))
    alone = [Case(w, n, options={"c": c}) for w, c in worlds for n in (0, 3, 16)]
    uneven = [Case(w, n, options={"c": w - 1}) for w in range(2, 6) for n in (0, 1, 7, 23)]
    kinds = [Case(3, 7, d, numbers="random", options={"c": 2}) for d in (
        "float64", "bfloat16", "int8", "int64", "bool", "complex64")]  # fmt: skip
    kinds += [Case(w, n, options={"c": 1, LONGER: "last"}) for w, n in ((2, 1), (3, 2), (4, 6))]
    kinds += [
        Case(2, 6, "int64", numbers="large", options={"c": 1}),
        Case(3, 6, options={"c": 1, ALL_HOLD: SIGNED}),
    ]
    again = [Case(3, 6, calls=3, options={"c": 0}, later=({"c": 1}, {"c": 2})),
             *late_calls(3, 1, options={"c": 1})]  # fmt: skip
    return [*alone, *uneven, *kinds, Case(3, 7, options={"c": 1, "left": float("nan")}), *again]


declare(Exercise(
    "04.3", "ring_all_gather",
    inputs=before_gather,
    expected=gathered,
    core=gather_core,
    sturdy=gather_sturdy,
    fits=lambda case: in_equal_chunks(case) and case.options["c"] < case.world,
    rules=[no_collectives, of_everybody],
    diagnoses=[
        SEND_FIRST, IN_FLIGHT,
        Diagnosis("assumes-owner", "It is right for one way of owning chunks only; the argument "
                  "`owned` says which chunk is finished here.", fixed_owner),
        Diagnosis("gather-short", "On each rank one chunk has not arrived. How many steps does "
                  "it take to see n−1 chunks go by?",
                  every(lambda p: values_only(p) and all(one_left(p, r)
                                                         for r in range(p.case.world)))),
        Diagnosis("adds", "What arrives is finished: it replaces what was there.",
                  every(lambda p: values_only(p) and added_up(p))),
        Diagnosis("alone", "A rank that is alone has every chunk already.",
                  only_where(alone)),
    ],
))  # fmt: skip


# ---- ring_seconds ----------------------------------------------------------------------------


def ring_time(n: int, nbytes: float, alpha: float, beta: float) -> float:
    """2(n−1)(α + S/n·β), Thakur, Rabenseifner and Gropp, 2005, without the adding."""
    steps, chunk = 2 * (n - 1), nbytes / n
    return steps * alpha + steps * chunk * beta


def seconds_core(rng: random.Random) -> list[tuple]:
    by_hand = [(2, 8, 1.0, 1.0), (4, 8, 1.0, 0.5), (8, 1 << 20, 5e-6, 4e-11)]
    return [*by_hand, *networks(rng)]


SECONDS = formula(
    "04.4", "ring_seconds", ring_time,
    core=seconds_core,
    sturdy=lambda rng: [(1, 8, 1.0, 0.5), (1, 0, 1.0, 0.5), (4, 0, 1.0, 0.5), (3, 7, 0.0, 0.5),
                        (3, 7, 1.0, 0.0)],
    diagnoses=[
        mistake("two-n", "Count the steps for two ranks by hand: it is not four.",
                lambda n, s, a, b: 2 * n * (a + s / n * b)),
        mistake("one-phase", "That is the time of one half; the sums have to come back, too.",
                lambda n, s, a, b: (n - 1) * (a + s / n * b)),
        mistake("whole-tensor", "A step carries one chunk, not the tensor.",
                lambda n, s, a, b: 2 * (n - 1) * (a + s * b)),
        mistake("latency-once", "Every step starts a message of its own, and each one waits "
                "for its latency.",
                lambda n, s, a, b: a + 2 * (n - 1) * s / n * b,
                lambda n, s, a, b: 2 * a + 2 * (n - 1) * s / n * b),
        mistake("bandwidth", "β is the time that one byte takes, in seconds per byte: what would "
                "twice as large a β mean?",
                lambda n, s, a, b: 2 * (n - 1) * (a + s / n / b) if b else math.inf),
    ],
)  # fmt: skip
declare(replace(SECONDS, expected=lambda play, call: [  # a float, as the stub says
    Seen(float(ring_time(*args))) for args in play.inputs[call]]))  # fmt: skip
