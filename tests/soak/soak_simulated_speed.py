"""How long the chunked ring all-reduce takes to simulate, against its budget.


256 float32 elements a chunk, isend and irecv, rendezvous sends. Values, virtual time and bytes are
checked too. Budgets are for an idle machine, where seconds are processor seconds: ranks run one at
a time. Both are written down; `make soak`, which shares the machine, goes by processor seconds.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "simulated"))
from soak_ranks_common import report
from test_network import ring

from course_lib.simulated import Network, simulate

BUDGET = {64: (0.5, 0.2), 256: (6.0, 2.0), 1024: (90.0, 25.0)}  # ranks: at most, aim at
ELEMENTS = 256


def measure(n: int, program: Callable = ring) -> dict:
    network = Network()
    wall, cpu = time.perf_counter(), time.process_time()
    run = simulate(program, ELEMENTS, world_size=n, network=network, limit=600.0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    nbytes = n * ELEMENTS * 4
    formula = 2 * (n - 1) * network.seconds(nbytes / n)
    right = (torch.arange(n * ELEMENTS, dtype=torch.float32) % 7) * n + n * (n - 1) / 2
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # Events are made below
    sent: Counter[int] = Counter()
    for event in run.trace.events:
        sent[event.rank] += event.nbytes if event.is_send else 0
    most, aim = BUDGET.get(n, (float("inf"), float("inf")))
    return {
        "ranks": n, "seconds": round(wall, 2), "processor seconds": round(cpu, 2), "at most": most,
        "aim at": aim, "times the aim": round(wall / aim, 1),
        "relative error of virtual time": abs(run.seconds / formula - 1),
        "right": all(torch.equal(result, right) for result in run.results),
        "bytes right": set(sent.values()) == {2 * (n - 1) * nbytes // n},
        "peak MB": peak,
    }  # fmt: skip


def faults(row: dict, seconds: str) -> list[str]:
    """What does not hold of a ring that was measured; ``seconds`` says which are meant."""
    holds = {
        "values": row["right"], "bytes": row["bytes right"],
        "virtual time": row["relative error of virtual time"] < 1e-9,
        "budget": row[seconds] <= row["at most"],
    }  # fmt: skip
    return [what for what, good in holds.items() if not good]


@pytest.mark.parametrize("n", BUDGET)
def test_a_ring_is_right_and_within_its_budget(n):
    simulate(ring, 1, world_size=2)  # imports are not what is measured
    row = measure(n)
    report(f"simulated_speed-{n}", **row)
    assert faults(row, "processor seconds") == []


def careless(elements: int) -> torch.Tensor:
    """One message too many, and one number wrong."""
    x = ring(elements)
    n, rank = dist.get_world_size(), dist.get_rank()
    sending = dist.isend(x[:1], (rank + 1) % n)
    dist.recv(x[:1].clone(), (rank - 1) % n)
    sending.wait()
    x[-1] -= rank
    return x


def test_the_judge_sees_what_does_not_hold(monkeypatch):
    monkeypatch.setitem(BUDGET, 64, (0.0, 1.0))
    assert faults(measure(64), "seconds") == ["budget"]
    assert faults(measure(64, careless), "seconds") == ["values", "bytes", "virtual time", "budget"]
