"""Where one rank leaves a call out, that is what is said, and not what then differs by chance."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from programs.missing_calls import CURES_OF_OTHERS, LEFT_OUT, MAY_BE, PROGRAMS

from course_lib import CourseError, Hang, run, simulate
from course_lib.branches import passes_both
from course_lib.trace import Line

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ENGINES = [pytest.param(run, marks=pytest.mark.slow), simulate]
pytestmark = pytest.mark.usefixtures("impatient")


def told(engine: Callable, program: Callable, size: int = 2) -> str:
    with pytest.raises(CourseError) as caught:
        engine(program, world_size=size)
    assert not isinstance(caught.value, Hang)
    return str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_call_that_is_missing_is_told_as_that(engine: Callable, program: Callable):
    text = told(engine, partial(program, False))
    assert [part for part in PROGRAMS[program] if part not in text] == [], text
    if LEFT_OUT in text:
        assert [cure for cure in CURES_OF_OTHERS if cure in text] == [], text


@pytest.mark.parametrize("engine", ENGINES)
def test_where_no_call_is_missing_nothing_is_told(engine: Callable):
    def all_in_turn() -> None:
        for program in PROGRAMS:
            program(True)

    engine(all_in_turn, world_size=2)


# ---- calls that belong together, and are wrong -------------------------------------------------


def two_branches() -> None:
    if dist.get_rank() == 0:
        dist.broadcast(torch.ones(3), src=0)
    else:
        dist.broadcast(torch.ones(3, dtype=torch.int64), src=0)


def in_turns() -> None:
    for step in range(4):
        if dist.get_rank() == step % 2:
            dist.broadcast(torch.ones(3), src=step % 2)
        else:
            dist.broadcast(torch.ones(3 + (step == 3)), src=step % 2)


@pytest.mark.parametrize("program", [two_branches, in_turns])
def test_of_two_branches_nobody_knows_and_both_are_named(program: Callable):
    text = told(simulate, program)
    assert MAY_BE in text and LEFT_OUT not in text and "parted" not in text
    assert re.search("If these two belong together, (convert one|both sides have to)", text)
    assert text.startswith("ranks 0 and 1 do not agree on the ")


# ---- the text of a function --------------------------------------------------------------------

SOURCE = """
def f():
    if rank:
        a()
    else:
        b()
    c()
    if rank:
        d()
        return
    for step in range(2):
        e()
    try:
        g()
    except ValueError:
        h()
    x = i() if rank else
        j()
def k():
    l()
"""
PARTED = [(pair, False) for pair in ("ab", "ad", "de", "eg", "gh", "ce", "ij", "gl", "el")]


@pytest.mark.parametrize(
    ("pair", "both"), [*dict.fromkeys(["ac", "bc", "cd"], True).items(), *PARTED]
)
def test_whether_a_rank_passes_both_of_two_lines(tmp_path: Path, pair: str, both: bool):
    file = tmp_path / "text.py"
    file.write_text(SOURCE)
    lines = SOURCE.splitlines()
    numbers = [next(n for n, text in enumerate(lines, 1) if f"{c}()" in text) for c in pair]
    function = ["f" if lines[n - 1] != "    l()" else "k" for n in numbers]
    one, other = (
        Line("text.py", n, lines[n - 1].strip(), name, str(file))
        for n, name in zip(numbers, function, strict=True)
    )
    assert passes_both(one, other) is passes_both(other, one) is both
    assert not passes_both(one, Line("text.py", other.number, "other()", "f", str(file)))


# ---- who is named ------------------------------------------------------------------------------


@pytest.mark.slow
def test_of_two_threads_that_use_one_group_both_starts_are_told():
    """As of a library that calls from threads of its own."""

    def in_turn() -> None:
        first, second = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        first.submit(dist.barrier).result()
        second.submit(dist.barrier).result()
        first.submit(dist.barrier if dist.get_rank() else dist.get_rank).result()
        dist.all_reduce(torch.ones(1))

    text = told(run, in_turn)
    assert text.startswith("two threads of rank 1 use one group at once.")
    assert "first.submit(dist.barrier).result()" in text
    assert "second.submit(dist.barrier).result()" in text
