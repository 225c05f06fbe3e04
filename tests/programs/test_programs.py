"""Every way in which a world can go wrong, for real and simulated, and what is said of it."""

from __future__ import annotations

import pytest
import torch

from course_lib import Deadlock, Mismatch, run
from course_lib.trace import Line
from programs import ENGINES, Program, faults, page, provoke, wrong_with

PROGRAMS = page.PROGRAMS + faults.PROGRAMS
# `make check` takes the simulated ones, which end at once
PLAYS = [
    pytest.param(program, engine, marks=[pytest.mark.slow] * (engine == "run"))
    for program in PROGRAMS
    for engine in program.engines
]
pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture(scope="module")
def started():
    """The first run of a process takes longest, longer than some timeouts here."""
    run(faults.nothing, world_size=2)


@pytest.mark.parametrize(("program", "engine"), PLAYS, ids=lambda one: getattr(one, "name", one))
def test_what_fails_is_told(program: Program, engine: str, request: pytest.FixtureRequest):
    if engine == "run":
        request.getfixturevalue("started")
    assert wrong_with(program, provoke(program, ENGINES[engine]), engine) == ""


def test_what_an_engine_says_in_its_own_words_differs_from_the_page():
    """A row of the table that is out of date is seen."""
    for program in page.PROGRAMS:
        for engine in program.in_own_words:
            told = provoke(program, ENGINES[engine])
            assert wrong_with(program._replace(in_own_words=()), told, engine), program.name


def test_the_judge_can_see():
    """A wrong class, a wrong property, another rank, a line that is not shown, gloo's words."""
    says = ("torch.ones(4)", "torch.ones(5)")
    program = Program("lengths", Mismatch, torch.ones, (0, 1), says, "shape")
    lines = [Line("cell [1]", n, source) for n, source in enumerate(says)]
    text = "\n".join(lines)
    assert wrong_with(program, Mismatch(text, what="shape", ranks=(0, 1), lines=lines)) == ""
    assert wrong_with(program, None)
    assert wrong_with(program, Deadlock(text))
    assert wrong_with(program, Mismatch(text, what="dtype", ranks=(0, 1), lines=lines))
    assert wrong_with(program, Mismatch(text, what="shape", ranks=(0, 2), lines=lines))
    assert wrong_with(program, Mismatch(lines[0], what="shape", ranks=(0, 1), lines=lines))
    assert wrong_with(program, Mismatch(text + " SIGABRT", what="shape", ranks=(0, 1), lines=lines))
