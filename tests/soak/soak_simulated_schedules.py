"""Many schedules: wrong programs are always caught, right ones never accused.


Each program is simulated under many seeds, with and without jitter, with rendezvous and buffered
sends. A wrong one must get its own error every time, with what is wrong in it, a right one none,
and equal results.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

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

RIGHT = [
    (agreement.every_kind_of_call, (), 3),
    (agreement.train, (), 2),
    (messages.rows_and_columns, (), 4),
    (messages.busy, (), 5),
    (messages.by_rank, (), 5),
    (network.ring, (5,), 6),
    *((execute, (program,), program["n"]) for program in map(make_program, range(10))),
]


def attempt(fn, args, n: int, seed: int, buffered: bool) -> tuple[str, list]:
    net = Network(jitter=1.0 if seed % 2 else 0.0)
    try:
        run = simulate(fn, *args, world_size=n, seed=seed, buffered=buffered, network=net)
        return "none", run.results
    except Exception as error:
        return f"{type(error).__name__}: {getattr(error, 'kind', error)}", []


def accused(right: list, schedules: int) -> list:
    """What right programs got that is an error, or not what they got under the first schedule."""
    found = []
    for fn, args, n in right:
        _, first = attempt(fn, args, n, 0, buffered=False)
        for seed in range(schedules):
            got, results = attempt(fn, args, n, seed, buffered=seed % 3 == 2)
            found += (
                [(fn.__name__, seed, got)] if got != "none" or not equal(first, results) else []
            )
    return found


def test_right_programs_are_never_accused():
    found = accused(RIGHT, count(50))
    report("simulated_schedules", accused=found)
    assert found == []


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


def test_the_judge_sees_who_is_accused():
    both = accused([(hazards.written_around_torch, (), 2)], 2)
    assert [got for *_, got in both] == ["Hazard: written before wait"] * 2
    assert accused([(messages.by_arrival, (), 4)], 20)  # results differ
