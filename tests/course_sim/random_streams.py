"""Random programs for modelled GPUs, and when they end: worked out without the simulator."""

from __future__ import annotations

import random
import time
from typing import Any

import torch
import torch.distributed as dist

from course_lib import Network, compute, simulate
from course_sim.costs import textbook_seconds
from course_sim.gpu.streams import LAUNCH

N, ALPHA, BANDWIDTH = 3, 1e-5, 1e9
_WHAT = [
    "compute",
    "compute",
    "sum",
    "sum",
    "gather",
    "ring",
    "wait",
    "sync",
    "item",
    "sleep",
    "barrier",
    "stream",
]
_CALLED = {"sum": "all_reduce", "gather": "all_gather", "barrier": "barrier"}


def make(seed: int) -> list[tuple]:
    rng = random.Random(seed)

    def seconds() -> list[float]:
        return [round(rng.random() * 1e-3, 6) * rng.choice([0, 1, 1]) for _ in range(N)]

    program: list[tuple] = []
    under_way: list[int] = []
    for k in range(rng.randrange(4, 25)):
        what = rng.choice(_WHAT)
        if what in ("sum", "gather", "ring"):
            waits_later = what == "ring" or rng.random() < 0.7
            program.append((what, rng.randrange(1, 100_000), waits_later, k))
            under_way += [k] * waits_later
        elif what == "wait" and under_way:
            program.append((what, under_way.pop(rng.randrange(len(under_way)))))
        elif what in ("compute", "sleep"):
            program.append((what, seconds()))
        elif what == "stream":
            program.append((what, rng.randrange(2)))
        elif what != "wait":
            program.append((what,))
    return [*program, *(("wait", k) for k in under_way), ("join",), ("sync",)]


def play(program: list[tuple]) -> tuple[list[float], list[list[float]]]:
    """What the host's clock shows where it is looked at, and the values at the end."""
    me, works, kept, seen = dist.get_rank(), {}, [], []
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    current = 0
    for what, *words in program:
        with torch.cuda.stream(streams[current]):
            if what == "compute":
                compute(words[0][me])
            elif what == "sleep":
                time.sleep(words[0][me])
            elif what == "sum":
                kept.append(torch.ones(words[0]))
                works[words[2]] = dist.all_reduce(kept[-1], async_op=words[1])
            elif what == "gather":
                x, out = torch.full((words[0],), float(me)), torch.empty(N * words[0])
                kept.append(out)
                works[words[2]] = dist.all_gather_single(out, x, async_op=words[1])
            elif what == "ring":
                x, inbox = torch.full((words[0],), float(me)), torch.empty(words[0])
                kept.append(inbox)
                pair = [
                    dist.P2POp(dist.isend, x, (me + 1) % N),
                    dist.P2POp(dist.irecv, inbox, (me - 1) % N),
                ]
                works[words[2]] = dist.batch_isend_irecv(pair)[0]
            elif what == "wait":
                works[words[0]].wait()
            elif what == "sync":
                torch.cuda.synchronize()
            elif what == "item":
                torch.zeros(1).item()
            elif what == "barrier":
                dist.barrier()
        if what == "stream":
            current = words[0]
        elif what == "join":
            current = 0
            streams[0].wait_stream(streams[1])
        elif what in ("sync", "barrier"):
            seen.append(time.perf_counter())
    return seen, [x.unique().tolist() for x in kept]


def by_hand(program: list[tuple]) -> tuple[list[list[float]], list[list[list[float]]]]:
    """The same for all ranks, as recursions over clocks."""
    ranks, current = range(N), 0
    host, lane, free = [0.0] * N, [0.0] * N, [[0.0, 0.0] for _ in ranks]
    ends: dict[int, list[float]] = {}
    seen: list[list[float]] = [[] for _ in ranks]
    values: list[list[list[float]]] = [[] for _ in ranks]

    def reached(r: int) -> float:
        return max(host[r], free[r][current])

    def collective(name: str, nbytes: int) -> list[float]:
        start = max(max(lane[r], reached(r)) for r in ranks)
        return [start + textbook_seconds(name, N, nbytes, ALPHA, 1 / BANDWIDTH)] * N

    def ring(nbytes: int) -> list[float]:
        begin = [max(lane[r], reached(r)) for r in ranks]
        start = [max(begin[r], begin[(r + 1) % N]) for r in ranks]  # of the message from r
        return [max(start[r], start[r - 1] + ALPHA) + nbytes / BANDWIDTH for r in ranks]

    for what, *words in program:
        if what in ("sum", "gather", "ring", "barrier"):
            nbytes = (4 * N if what == "gather" else 4) * words[0] if words else 0
            lane = ring(nbytes) if what == "ring" else collective(_CALLED[what], nbytes)
            if words:
                ends[words[2]] = lane
        for r in ranks:
            if what == "compute":
                free[r][current] = reached(r) + words[0][r]
            elif what == "sleep":
                host[r] += words[0][r]
            elif what == "wait":
                free[r][current] = max(free[r][current], ends[words[0]][r])
            elif what in ("sum", "gather", "barrier") and not (words and words[1]):
                free[r][current] = max(free[r][current], lane[r])
            if what in ("compute", "sum", "gather", "ring", "barrier"):
                host[r] += LAUNCH
            if what in ("item", "barrier"):
                host[r] = reached(r)
            if what == "sync":
                host[r] = max(host[r], lane[r], *free[r])
            if what == "join":
                free[r][0] = max(free[r])
            if what in ("sync", "barrier"):
                seen[r].append(host[r])
            if what in ("sum", "gather", "ring"):
                came = {"sum": [N], "gather": [*ranks], "ring": [(r - 1) % N]}[what]
                values[r].append([float(value) for value in came])
        current = words[0] if what == "stream" else 0 if what == "join" else current
    return seen, values


def differences(seed: int) -> list[Any]:
    """What a program does otherwise than by hand; a right program that is accused raises."""
    program, network = make(seed), Network(ALPHA, BANDWIDTH)
    run = simulate(play, program, world_size=N, network=network, backend="nccl", seed=seed % 3)
    seen, values = by_hand(program)
    return [
        (seed, program, got, want, value)
        for got, want, value in zip(run.results, seen, values, strict=True)
        if got[1] != value
        or len(got[0]) != len(want)
        or any(abs(a - b) > 1e-9 * b for a, b in zip(got[0], want, strict=True))
    ]
