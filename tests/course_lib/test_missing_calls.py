"""Where one rank leaves a call out, that is what is said, and not what then differs by chance."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from programs.missing_calls import CURES_OF_OTHERS, LEFT_OUT, MAY_BE, PROGRAMS

from course_lib import CourseError, Hang, Mismatch, run, simulate
from course_lib.branches import passes_both
from course_lib.diagnosis.history import History
from course_lib.trace import Line

cloudpickle.register_pickle_by_value(sys.modules[__name__])
on_nccl = partial(simulate, backend="nccl")
ENGINES = [pytest.param(run, marks=pytest.mark.slow), simulate, on_nccl]
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


def guard() -> None:
    if dist.get_rank() == 0:
        dist.broadcast(torch.ones(3), src=0)
        return
    dist.broadcast(torch.ones(4), src=0)


@pytest.mark.parametrize("engine", [simulate, on_nccl])
@pytest.mark.parametrize("program", [two_branches, in_turns, guard])
def test_of_two_branches_nobody_knows_and_both_are_named(engine: Callable, program: Callable):
    text = told(engine, program)
    assert MAY_BE in text and LEFT_OUT not in text and "parted" not in text
    assert re.search("If these two belong together, (convert one|both sides have to)", text)
    assert text.startswith("ranks 0 and 1 do not agree on the ")


def one_line() -> None:
    dist.barrier()
    dist.all_reduce(torch.ones(3 + dist.get_rank()))


@pytest.mark.parametrize("engine", [simulate, on_nccl])
def test_at_one_line_what_differs_is_told(engine: Callable):
    text = told(engine, one_line)
    assert text.endswith("Both sides have to use the same number of elements.")
    assert MAY_BE not in text and LEFT_OUT not in text


def branches_then_one_line() -> None:
    if dist.get_rank() == 0:
        dist.broadcast(torch.ones(3), src=0)
    else:
        dist.broadcast(torch.ones(3), src=0)
    dist.all_reduce(torch.ones(3 + dist.get_rank()))


@pytest.mark.parametrize("engine", [simulate, on_nccl])
def test_two_branches_that_met_are_no_parting(engine: Callable):
    assert "parted" not in told(engine, branches_then_one_line)


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


@pytest.mark.parametrize(
    ("pair", "both"),
    [
        ("ab", False), ("ac", True), ("bc", True), ("ad", False), ("cd", True), ("de", False),
        ("eg", False), ("gh", False), ("ce", False), ("ij", False), ("gl", False), ("el", False),
    ],
)  # fmt: skip
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
    import tempfile

    import torch.distributed.checkpoint as dcp

    def saves_twice() -> None:
        box = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(box, src=0)
        states = [{f"{name}{i}": torch.ones(1000) for i in range(20)} for name in "wm"]
        first = dcp.async_save(states[0], checkpoint_id=f"{box[0]}/first")
        second = dcp.async_save(states[1], checkpoint_id=f"{box[0]}/second")
        first.result()
        second.result()

    # It is chance which calls meet, whether they fit, and whether that is seen before a second
    # thread has called.
    said = ""
    for _ in range(5):
        with pytest.raises((Mismatch, Hang)) as caught:
            run(saves_twice, world_size=2, timeout=30)
        said = str(caught.value)
        if re.search(r"two threads of rank \d use one group at once", said):
            break
    assert {"/first", "/second"} <= set(re.findall("/first|/second", said))
    assert "two threads of rank" in said


def test_nothing_is_counted_of_a_rank_of_which_nothing_is_known():
    calls = {0: ["all_reduce"] * 3, 1: ["all_reduce"] * 2, 2: []}
    assert History(calls).tell_counts([0, 1]) == [
        "In this group, rank 0 made 3 collective calls, rank 1 made 2."
    ]
    assert History(calls, gone=5).tell_counts([0, 2, 9]) == [
        "In this group, rank 0 made 8 collective calls, rank 2 made 5."
    ]
    assert History(calls).tell_counts([1]) == []
