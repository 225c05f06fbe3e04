"""What passes for an answer and is none: each looks right to a check that can be fooled."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import find
from course_lib.checks.in_rank import Answer
from course_lib.checks.verdict import Verdict

pytestmark = pytest.mark.slow

RIGHT_RING = """
def right_ring(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    for step in range(2 * (world - 1)):
        out, into = chunks[(rank - step) % world], chunks[(rank - step - 1) % world]
        inbox = torch.empty_like(into)
        going = dist.isend(out, (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        into.copy_(into + inbox if step < world - 1 else inbox)
    tensor.copy_(flat.reshape(tensor.shape))
"""


def verdict(exercise: str, source: str) -> Verdict:
    return verdict_on(find(exercise), Answer(exercise, source=source, file="cheat.py"))


def test_the_ring_of_these_tests_is_right() -> None:
    got = verdict("ring_all_reduce", RIGHT_RING + "\nring_all_reduce = right_ring\n")
    assert got.passed, str(got)


@pytest.mark.parametrize(
    ("exercise", "call"),
    [
        ("ring_all_reduce", "def ring_all_reduce(tensor):\n"
         "    ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name\n"
         "    tensor.copy_(ops.wait_tensor(ops.all_reduce(tensor.contiguous(), 'sum', name)))"),
        ("in_order", "def in_order(work):\n    for turn in range(dist.get_world_size()):\n"
         "        if turn == dist.get_rank():\n            work()\n"
         "        dist.group.WORLD.barrier().wait()"),
    ],
)  # fmt: skip
def test_calling_a_collective(exercise: str, call: str) -> None:
    got = verdict(exercise, call)
    assert not got.passed
    assert got.diagnosis in ("04.collective", "01.collective"), str(got)


def test_messages_of_the_right_size_with_nothing_in_them(tmp_path: Path) -> None:
    """Whatever the messages carry, the answer is right: so they do not carry it."""
    source = f"""
def path(rank):
    return f"{tmp_path}/{{rank}}-{{dist.get_world_size()}}"

def meet(noise, partner):
    going = dist.isend(noise, partner)
    dist.recv(noise.clone(), partner)
    going.wait()

def exchange(mine, partner):
    torch.save(mine, path(dist.get_rank()))
    meet(torch.zeros_like(mine), partner)
    answer = torch.load(path(partner)).clone()
    meet(torch.zeros_like(mine), partner)
    return answer
"""
    got = verdict("exchange", source)
    assert not got.levels["core"].passed, str(got)
    assert got.diagnosis == "01.beside-messages", str(got)


def test_special_casing_the_sizes_that_are_known() -> None:
    special = (
        "def ring_all_reduce(tensor):\n    if tensor.numel() < 16:\n        right_ring(tensor)"
    )
    got = verdict("ring_all_reduce", f"{RIGHT_RING}\n\n{special}\n")
    assert not got.levels["core"].passed, str(got)


def test_the_sizes_that_are_drawn_change_with_the_answer() -> None:
    def lengths(source: str) -> set[int]:
        got = verdict("ring_all_reduce", source)
        return {p.case.length for p in got.levels["core"].plays}

    one = lengths("def ring_all_reduce(tensor):\n    pass\n")
    assert one == lengths("def ring_all_reduce(tensor):\n    pass\n")
    assert one != lengths("def ring_all_reduce(tensor):\n    return\n")


def test_catching_what_the_check_raises() -> None:
    source = """
def exchange(mine, partner):
    inbox = torch.empty_like(mine)
    try:
        dist.send(mine, partner)
        dist.recv(inbox, partner)
    except BaseException:
        pass
    return inbox
"""
    got = verdict("exchange", source)
    assert got.diagnosis == "01.send-first", str(got)


def test_patching() -> None:
    source = """
import course_lib.checks.compare as c
import course_lib.checks.in_rank as p
import course_lib.checks.judge as j
import course_lib.checks.verdict as v
import course_lib.trace as t

def ring_all_reduce(tensor):
    torch.Tensor.__eq__ = lambda *a: torch.ones(1, dtype=torch.bool)
    j.judge, c.same, v.Verdict.passed = lambda *a: None, lambda *a: True, True
    p.snapshot, p._notes, t.Trace.events = lambda value: None, lambda *a: (), []
"""
    got = verdict("ring_all_reduce", source)
    assert not got.levels["core"].passed, str(got)
