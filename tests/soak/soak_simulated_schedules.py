"""Many schedules: wrong programs are always caught, right ones never accused.


Each program is simulated under many seeds, with and without jitter, with rendezvous and buffered
sends. A wrong one must get its own error every time, with what is wrong in it, a right one none,
and equal results.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "course_sim"))
import test_agreement as agreement
import test_hazards as hazards
import test_messages as messages
import test_network as network
from programs import faults, page, provoke, wrong_with
from random_programs import execute, make_program
from soak_ranks_common import count, report

from course_lib import Deadlock, Hazard, Mismatch
from course_sim import Network, simulate
from course_sim.tensor_memory import equal

READ, WRITTEN = (f"Hazard: {kind}" for kind in ("read before wait", "written before wait"))
WRONG = [
    *(
        (partial(hazards.read_before_wait, dtype), 2, READ)
        for dtype in (torch.float32, torch.int64, torch.bool)
    ),
    (hazards.read_and_passed_on, 3, READ),
    (hazards.branched_on, 2, READ),
    (hazards.written_around_torch, 2, WRITTEN),
    (hazards.inbox_written, 2, WRITTEN),
    (hazards.outgoing_is_inbox, 2, WRITTEN),
    (hazards.two_messages_into_one_inbox, 2, WRITTEN),
]
RIGHT = [
    (agreement.every_kind_of_call, 3),
    (agreement.train, 2),
    (messages.rows_and_columns, 4),
    (messages.busy, 5),
    (messages.group_in_passing, 3),
    (messages.by_rank, 5),
    (hazards.two_inboxes_in_one_tensor, 3),
    (hazards.nan_on_its_way, 2),
    (hazards.futures_instead_of_wait, 2),
    (hazards.empty_messages, 2),
    (network.star, 6),
    (partial(network.ring, 5), 6),
    *((partial(execute, program), program["n"]) for program in map(make_program, range(10))),
]


def name(program) -> str:
    inner = getattr(program, "func", program)
    return f"{inner.__name__}{[str(a)[:40] for a in getattr(program, 'args', ())] or ''}"


def attempt(program, n: int, seed: int, buffered: bool) -> tuple[str, list]:
    inner, args = getattr(program, "func", program), getattr(program, "args", ())
    net = Network(jitter=1.0 if seed % 2 else 0.0)
    try:
        run = simulate(inner, *args, world_size=n, seed=seed, buffered=buffered, network=net)
        return "none", run.results
    except Exception as error:
        what = getattr(error, "kind", None) or getattr(error, "what", None)
        return type(error).__name__ + (f": {what}" if what else ""), []


def try_all(wrong: list, right: list, schedules: int) -> dict:
    """Every program under every schedule: who was missed, and who accused."""
    begin, missed, accused, tried = time.monotonic(), [], [], 0
    for program, n, error in wrong:
        for buffered in (False, True):
            for seed in range(schedules):
                got, _ = attempt(program, n, seed, buffered)
                tried += 1
                if got != error:
                    missed.append([name(program), seed, buffered, got])
    for program, n in right:
        first: list = []
        for seed in range(schedules):
            got, results = attempt(program, n, seed, buffered=seed % 3 == 2)
            tried += 1
            first = first or results
            if got != "none" or not equal(first, results):
                accused.append([name(program), seed, got])
    return {
        "schedules": schedules,
        "simulations": tried,
        "wrong programs": len(wrong),
        "right programs": len(right),
        "missed": missed,
        "accused": accused,
        "seconds": round(time.monotonic() - begin, 1),
    }


def test_wrong_programs_are_caught_and_right_ones_never_accused():
    found = try_all(WRONG, RIGHT, count(50))
    report("simulated_schedules", **found)
    assert (found["missed"], found["accused"]) == ([], [])


def test_whatever_does_not_fit_is_told_in_every_schedule():
    """The programs of tests/programs: their kind, for the words depend on who comes first."""
    blocked = [
        one
        for one in page.PROGRAMS + faults.PROGRAMS
        if "simulate" in one.engines and one.kind in (Deadlock, Mismatch, Hazard)
    ]
    wrong = []
    for program in blocked:
        for seed in range(count(50)):
            buffered = seed % 3 == 2 and program.name != "Both send first"
            engine = partial(simulate, seed=seed, buffered=buffered, network=Network(jitter=1.0))
            wrong += [wrong_with(program._replace(says=()), provoke(program, engine), "simulate")]
    report("simulated_programs", simulations=len(wrong), wrong=[*filter(None, wrong)])
    assert not any(wrong)


def test_the_judge_sees_who_was_missed_and_who_accused():
    found = try_all([(network.both_ways, 2, READ)], [(hazards.written_around_torch, 2)], 2)
    assert [seen[-1] for seen in found["missed"]] == ["none"] * 4
    assert [seen[-1] for seen in found["accused"]] == [WRITTEN] * 2
    assert try_all([], [(messages.by_arrival, 4)], 20)["accused"]  # results differ
