"""What travels to a rank and back: tensors keep their strides, and what lies between elements."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import zoo
from torch import Tensor

from course_lib.checks.cases import Case, tensor
from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import Exercise, Play, find
from course_lib.checks.in_rank import Answer
from course_lib.checks.play import real, simulated

SPY = """
def whole(mine):
    memory = torch.empty(0, dtype=mine.dtype).set_(mine.untyped_storage())
    found = memory.tolist()
    memory[0] = 100 + dist.get_rank()  # in front of a strided tensor's first element
    return list(mine.stride()), mine.storage_offset(), found
"""
WHOLE = Exercise(
    "99.1", "whole", lambda given: None,
    inputs=lambda case, rank: (tensor(case, rank),),
    core=lambda rng: [],
)  # fmt: skip
SPIED = Answer("whole", source=SPY, file="whole.py")


def in_simulator(case: Case) -> Play:
    (play,) = simulated(WHOLE, SPIED, [case])
    return play


def on_real_ranks(case: Case) -> Play:
    return real(WHOLE, SPIED, case)


def memory(t: Tensor) -> Tensor:
    return torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())


@pytest.mark.parametrize("world", [in_simulator, on_real_ranks])
def test_a_tensor_keeps_its_strides_on_its_way_to_a_rank_and_back(world) -> None:
    case = Case(2, 4, layout="strided")
    play = world(case)
    assert play.error is None, play.error
    for rank in range(2):
        sent, seen = tensor(case, rank), play.got(rank)
        assert not sent.is_contiguous()
        assert seen.returned == (
            list(sent.stride()), sent.storage_offset(), memory(sent).tolist()
        )  # fmt: skip
        (back,) = seen.args
        assert (back.stride(), back.storage_offset()) == (sent.stride(), sent.storage_offset())
        assert memory(back).tolist() == [100 + rank, *memory(sent).tolist()[1:]]


def test_what_held_up_one_play_once_is_no_hang(tmp_path: Path) -> None:
    """A busy machine may stand still for seconds; an answer that never ends does so again."""
    stalls_once = f"""
import pathlib
def whole(mine):
    tries = pathlib.Path({str(tmp_path)!r}, "tries")
    if dist.get_world_size() == 3 and dist.get_rank() == 0:
        tries.open("a").write("x")
        while tries.read_text() == "x":
            pass
    return dist.get_rank()
"""
    cases = [Case(world) for world in (2, 3, 4)]
    plays = simulated(WHOLE, Answer("whole", source=stalls_once, file="whole.py"), cases)
    assert (tmp_path / "tries").read_text() == "xx"
    assert [play.got(1).returned for play in plays] == [1, 1, 1]


def test_where_nothing_can_be_simulated_gloo_plays_and_the_rest_is_named(monkeypatch) -> None:
    from course_lib.simulated import compat

    monkeypatch.setattr(compat, "missing", lambda: "this torch is another one")
    answer = Answer("exchange", source=zoo.right("exchange")["lower_first"], file="exchange.py")
    verdict = verdict_on(find("exchange"), answer)
    assert not verdict.failed and not verdict.passed
    assert "not graded on this machine: messages and bytes" in str(verdict)
    assert verdict.as_json()["ungraded"]
