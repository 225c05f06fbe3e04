"""What travels to a rank and back arrives as it was: strides, foreign elements, dtypes, models; and
what becomes of a play on a machine that is busy, or cannot simulate."""

from __future__ import annotations

import importlib
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
import zoo
from torch import Tensor, nn

from course_check.cases import Case, tensor
from course_check.checking import verdict_on
from course_check.compare import show_apart
from course_check.exercise import Exercise
from course_check.harness.answer import Answer
from course_check.harness.kept import Kept
from course_check.play import HERE
from course_exercises.catalogue import find
from course_lib import run

# ---- packed and unpacked -------------------------------------------------------------------------


def memory(t: Tensor) -> list[int]:
    """Every byte of the memory that a tensor looks into, also those between its elements."""
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage()).tolist()


def assert_alike(got: Tensor, want: Tensor) -> None:
    assert type(got) is type(want)
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    assert got.storage_offset() == want.storage_offset()
    assert got.requires_grad == want.requires_grad
    assert memory(got) == memory(want)
    assert not want.numel() or got.data_ptr() != want.data_ptr()


def test_a_tensor_of_every_kind() -> None:
    for layout, dtype, length in product(("strided", "mixed"), ("float32", "bool"), (0, 6)):
        want = tensor(Case(3, length, dtype, layout, numbers="random"), 1)
        assert_alike(Kept(want).value, want)


def test_gradients_are_there_and_are_asked_for_as_before() -> None:
    want = torch.ones(3, requires_grad=True)
    assert_alike(Kept(want).value, want)
    model = nn.Linear(2, 3)
    model.bias.requires_grad_(False)
    model.weight.grad = torch.ones(2, 3).t()
    got = Kept(model).value
    for name, p in model.named_parameters():
        assert_alike(got.get_parameter(name), p)
    assert_alike(got.weight.grad, model.weight.grad)
    assert got.bias.grad is None


def test_a_tensor_that_is_more_than_its_memory() -> None:
    complex_ones = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(Kept(complex_ones.conj()).value, complex_ones.conj())
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(Kept(sparse).value.to_dense(), torch.eye(3))


def test_what_differs_in_kind_alone_does_not_look_alike() -> None:
    for got, want in ((2.0, 2), ([1.0], [1]), (1.0, 1.0000001)):
        one, other = show_apart(got, want)
        assert one != other


# ---- played --------------------------------------------------------------------------------------

SPY = """
def whole(mine):
    found = torch.empty(0, dtype=mine.dtype).set_(mine.untyped_storage())
    seen = found.tolist()
    found[0] = 100 + dist.get_rank()  # in front of a strided tensor's first element
    return list(mine.stride()), mine.storage_offset(), seen
"""
WHOLE = Exercise(
    "99.1",
    "whole",
    lambda given: None,
    inputs=lambda case, rank: (tensor(case, rank),),
    core=lambda rng: [],
)


@pytest.mark.parametrize("on_real_ranks", [False, True])
def test_a_tensor_keeps_its_strides_on_its_way_to_a_rank_and_back(on_real_ranks: bool) -> None:
    case, spy = Case(2, 4, layout="strided"), Answer("whole", source=SPY, file="whole.py")
    [play] = HERE.play_all(WHOLE, spy, [case])
    if on_real_ranks:
        play = HERE.play_real(WHOLE, spy, case)
    assert play.error is None, play.error
    for rank in range(2):
        sent, seen = tensor(case, rank), play.got(rank)
        whole = torch.empty(0).set_(sent.untyped_storage())
        assert seen.returned == (list(sent.stride()), sent.storage_offset(), whole.tolist())
        whole[0] = 100 + rank
        assert_alike(seen.args[0], sent)


def test_what_one_check_has_imported_the_next_finds_imported() -> None:
    """Each is a process of its own, forked from one that imports what earlier ones had to."""

    def look() -> tuple[bool, str]:
        known = "course_sim.engine" in sys.modules
        return known, importlib.import_module("course_sim.engine").__name__

    first, second = (run(look, world_size=1, init=False).results[0][0] for _ in range(2))
    assert second, first


@pytest.mark.slow
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
    plays = HERE.play_all(WHOLE, Answer("whole", source=stalls_once, file="whole.py"), cases)
    assert (tmp_path / "tries").read_text() == "xx"
    assert [play.got(1).returned for play in plays] == [1, 1, 1]


def test_where_nothing_can_be_simulated_gloo_plays_and_the_rest_is_named(monkeypatch) -> None:
    from course_sim.isolation import compat

    monkeypatch.setattr(compat, "missing", lambda: "this torch is another one")
    answer = Answer("exchange", source=zoo.right("exchange")["lower_first"], file="exchange.py")
    verdict = verdict_on(find("exchange"), answer)
    assert not verdict.failed and not verdict.passed
    assert "not graded on this machine: messages and bytes" in str(verdict)
    assert verdict.as_json()["ungraded"]
