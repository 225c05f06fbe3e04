"""Random programs on real ranks and in the simulator: the same values, the same trace twice.


Programs of one world size travel together, so that starting processes is not what takes the time.
Each is simulated with rendezvous and with buffered sends, and its trace is compared byte for byte
with that of a second simulation with the same seed.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "course_sim"))
import pytest
from random_programs import execute_all, make_program
from random_streams import differences
from soak_ranks_common import count, report

from course_lib import run
from course_sim import Network, simulate
from course_sim.exchange import combine
from course_sim.tensor_memory import equal

TOGETHER = 20  # programs a world


def compare_all(seeds: range) -> dict:
    """The random programs of these seeds, everywhere: what differs, and what they were made of."""
    begin = time.monotonic()
    by_size: dict[int, list[tuple[int, dict]]] = {}
    for seed in seeds:
        program = make_program(seed)
        by_size.setdefault(program["n"], []).append((seed, program))
    counts: Counter[str] = Counter()
    wrong: list[dict] = []
    for n, programs in sorted(by_size.items()):
        for start in range(0, len(programs), TOGETHER):
            batch = programs[start : start + TOGETHER]
            compare(n, [p for _, p in batch], [s for s, _ in batch], counts, wrong)
    return {
        "programs": len(seeds),
        "steps": dict(counts),
        "wrong": wrong,
        "seconds": round(time.monotonic() - begin, 1),
    }


@pytest.mark.parametrize("part", range(4))
def test_random_programs_agree(part):
    each = count(1000) // 4
    found = compare_all(range(part * each, (part + 1) * each))
    report(f"simulated_agreement-{part}", **found)
    assert found["programs"] >= 1 and found["wrong"] == []


def test_random_programs_for_gpus_take_what_they_take_by_hand():
    """All of them are right: one that is accused raises."""
    seeds = range(count(400))
    wrong = [found for seed in seeds for found in differences(seed)]
    report("simulated_streams", programs=len(seeds), wrong=wrong)
    assert wrong == []


def test_the_judge_sees_a_value_and_a_trace_that_differ(monkeypatch):
    """A simulator whose networks are never the same twice, and whose sums are one too large."""
    latencies, same_each_time = iter(range(1, 1000)), simulate

    def never_the_same(*args, **words):
        return same_each_time(*args, network=Network(latency=next(latencies)), **words)

    monkeypatch.setattr(sys.modules[__name__], "simulate", never_the_same)
    fold = combine.reduce_tensors
    monkeypatch.setattr(combine, "reduce_tensors", lambda *args: fold(*args) + 1)
    seen = compare_all(range(3))["wrong"]
    assert {"what" in fault for fault in seen} == {True, False}


def compare(n: int, programs: list[dict], seeds: list[int], counts: Counter, wrong: list) -> None:
    real = run(execute_all, programs, world_size=n, record=False).results
    first = simulate(execute_all, programs, world_size=n, seed=n)
    again = simulate(execute_all, programs, world_size=n, seed=n)
    buffered = simulate(execute_all, programs, world_size=n, buffered=True)
    if pickle.dumps(first.trace) != pickle.dumps(again.trace):
        wrong.append({"seeds": seeds, "what": "two traces of one seed differ"})
    for how, simulated in (("rendezvous", first), ("buffered", buffered)):
        for rank in range(n):
            pairs = zip(seeds, real[rank], simulated.results[rank], strict=True)
            wrong += [
                {"seed": seed, "rank": rank, "sends": how}
                for seed, a, b in pairs
                if not equal(a, b)
            ]
    counts.update(step["op"] for program in programs for step in program["steps"])
