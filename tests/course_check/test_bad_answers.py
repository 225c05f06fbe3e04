"""Answers that misbehave, and what passes for an answer and is none: each gets a verdict, and the
next check works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import zoo

from course_check import play
from course_check.checking import measure, verdict_on
from course_check.harness.answer import Answer
from course_check.verdict import Verdict
from course_exercises.catalogue import find
from course_lib import CheckFailed, check
from course_lib.__main__ import main
from course_lib.errors import Hang

pytestmark = pytest.mark.slow

RIGHT = zoo.right("exchange")["lower_first"]
RING = zoo.right("ring_all_reduce")["in_two_halves"]
WRONG = "def exchange(mine, partner):\n    return mine.clone()\n"
STUB = "def exchange(mine, partner):\n    raise NotImplementedError('not written yet')\n"


def verdict(source: str, exercise: str = "exchange") -> Verdict:
    return verdict_on(find(exercise), Answer(exercise, source=source, file="bad.py"))


def first(*lines: str) -> str:
    """The right answer, which does something else first."""
    head, end = RIGHT.split("    if partner")
    return head + "".join(f"    {line}\n" for line in lines) + "    if partner" + end


# ---- what ends badly -----------------------------------------------------------------------------

BAD = [
    ("01.signature", RIGHT.replace("(mine, partner)", "(mine)")),
    ("01.hangs", first("while dist.get_rank() == 0:", "    pass")),  # the simulator ends it,
    ("01.hangs", first("import ctypes", "ctypes.PyDLL(None).sleep(99)")),  # and this the system
    ("01.exits", first("import ctypes", "ctypes.string_at(0)")),
    ("01.starts-process", first("import os", "os.fork()")),
    ("01.returns-nothing", RIGHT.replace("return inbox", "print(inbox)")),
    ("01.wrong-type", RIGHT.replace("return inbox", "return inbox.tolist()")),
    ("01.import", "import sys\nsys.exit(0)\n" + RIGHT),
]


@pytest.mark.parametrize(("diagnosis", "source"), BAD)
def test_what_ends_badly_gets_a_verdict_and_the_next_check_works(
    diagnosis: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hang ends by itself, and all play with it: no other case is waited for."""
    monkeypatch.setattr(play, "ASLEEP", 4)
    got = verdict(source)
    assert got.diagnosis == diagnosis, str(got)
    assert got.points == 0
    plays = [p for level in got.levels.values() for p in level.plays]
    assert sum(isinstance(p.error, Hang) for p in plays) == (got.diagnosis == "01.hangs")
    assert str(verdict(STUB)) == "01.1 exchange: not written yet"


def test_megabytes_of_output_and_changed_defaults_stay_where_they_are(
    capfd: pytest.CaptureFixture[str],
) -> None:
    got = verdict(first("print('x' * 3_000_000)"))
    assert got.passed, str(got)
    assert len(capfd.readouterr().out) < 1000
    verdict(first("torch.set_default_dtype(torch.float64)", "torch.set_grad_enabled(False)"))
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


# ---- what is no answer ---------------------------------------------------------------------------


def test_calling_a_collective_by_another_name() -> None:
    source = """
def ring_all_reduce(tensor):
    ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name
    tensor.copy_(ops.wait_tensor(ops.all_reduce(tensor.contiguous(), 'sum', name)))
"""
    got = verdict(source, "ring_all_reduce")
    assert got.diagnosis == "04.collective", str(got)


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
    got = verdict(source)
    assert not got.levels["core"].passed, str(got)
    assert got.diagnosis == "01.beside-messages", str(got)


def test_the_sizes_that_are_drawn_change_with_the_answer_and_nobody_knows_them() -> None:
    def lengths(source: str) -> set[int]:
        got = verdict(RING.replace("def ", "def right_") + source, "ring_all_reduce")
        assert not got.levels["core"].passed, str(got)
        return {p.case.length for p in got.levels["core"].plays}

    special = (
        "\ndef ring_all_reduce(tensor):\n    if tensor.numel() < {}:\n"
        "        right_ring_all_reduce(tensor)\n"
    )
    one = lengths(special.format(16))
    assert one == lengths(special.format(16))
    assert one != lengths(special.format(17))


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
    assert verdict(source).diagnosis == "01.send-first"


def test_state_that_is_kept_from_call_to_call() -> None:
    kept = "box.setdefault(mine.shape, torch.empty_like(mine"
    source = "box = {}\n" + RIGHT.replace("torch.empty_like(mine", kept).replace(
        "contiguous_format)", "contiguous_format))", 1
    )
    got = verdict(source)
    assert not got.levels["core"].passed, str(got)


# ---- what is shown -------------------------------------------------------------------------------


def test_an_unknown_name() -> None:
    def ring_allreduce(tensor: object) -> None: ...

    with pytest.raises(CheckFailed, match="did you mean ring_all_reduce"):
        check(ring_allreduce)
    with pytest.raises(TypeError, match="takes a function"):
        check(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [WRONG, STUB, RIGHT])
def test_what_a_notebook_shows(source: str) -> None:
    space = {"torch": torch, "dist": dist, "__name__": "__main__"}
    exec(source, space)
    try:
        shown = repr(check(space["exchange"])).splitlines()  # type: ignore[arg-type]
    except CheckFailed as error:
        shown = error._render_traceback_()
    want = {WRONG: "0 of 100 points", STUB: "not written yet", RIGHT: "passed"}[source]
    assert shown[0] == f"01.1 exchange: {want}"
    assert any("01.nothing-sent" in line for line in shown) == (source == WRONG)
    assert not any("check.py" in line for line in shown)


def test_one_line_for_what_several_ranks_do_and_none_too_wide_for_a_notebook() -> None:
    source = RIGHT.replace("return inbox", "return mine.copy_(inbox)")
    text = str(verdict(source))
    assert text.count("what is returned shares memory with an argument") == 1
    assert "ranks 0, 1: what is returned shares memory with an argument" in text
    assert max(map(len, text.splitlines())) <= 106
    assert "\n01.changes-argument: Something of the caller's has changed" in text
    assert text == str(verdict(source))


def shown(got: Verdict) -> tuple[int, int]:
    assert got.first_failing is not None and got.first_failing.play is not None
    return measure(got.first_failing.play.case)


def test_the_first_case_that_fails_is_shown() -> None:
    got = verdict(first("if mine.numel() > 1:", "    mine = -mine"))
    assert shown(got) == (2, 3), str(got)
    assert "core, the smallest case that shows it: 2 ranks, length 3" in str(got)


def test_a_star_is_shown_where_it_differs_from_a_chain() -> None:
    """It breaks the budget on three ranks, too: the case that is shown is not the smallest."""
    got = verdict(zoo.source("my_reduce_scatter", "star"), "my_reduce_scatter")
    assert shown(got) == (4, 4)
    assert "budget, a case that shows it: 4 ranks, length 4" in str(got)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = tmp_path / "answer.py"
    answer.write_text(WRONG)
    assert main(["check", "exchange", str(answer), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["passed"], said["points"], said["diagnosis"]) == (False, 0, "01.nothing-sent")
    assert said["case"]["ranks"] == 2 and said["case"]["values"][0]["expected"] and said["hint"]
    for text in ("def other(): pass\n", "\udcff", None):
        answer.unlink()
        if text is not None:
            answer.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert main(["check", "exchange", str(answer)]) == 2
        assert main(["check", "no_such_exercise", str(answer)]) == 2
        nothing = capsys.readouterr()
        assert nothing.out == ""
        assert len(nothing.err.splitlines()) == 2
