"""Answers that misbehave: a verdict with a diagnosis, and the next check works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib import CheckFailed
from course_lib.__main__ import main
from course_lib.checks import check
from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import find
from course_lib.checks.in_rank import Answer
from course_lib.checks.verdict import Verdict
from course_lib.errors import Hang

pytestmark = pytest.mark.slow

RIGHT = """
def exchange(mine, partner):
    if partner == dist.get_rank():
        return mine.clone()
    outbox = mine.contiguous()
    inbox = torch.empty_like(outbox)
    going = dist.isend(outbox, partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
"""


def verdict(source: str, exercise: str = "exchange") -> Verdict:
    return verdict_on(find(exercise), Answer(exercise, source=source, file="bad.py"))


def body(*lines: str) -> str:
    return "import os, sys, time\n\n\ndef exchange(mine, partner):\n" + "".join(
        f"    {line}\n" for line in lines)  # fmt: skip


BAD = {
    "01.signature": ["def exchange(mine):\n    return mine\n"],
    "01.hangs": [body("while dist.get_rank() == 0:", "    pass"),  # the simulator ends it,
                 body("import re", "re.match('(a+)+$', 'a' * 40 + 'b')")],  # the system
    "01.exits": [body("sys.exit(3)"), body("import ctypes", "ctypes.string_at(0)")],
    "01.starts-process": [body("os.fork()", "return mine")],
    "01.returns-nothing": [RIGHT.replace("return inbox", "print(inbox)")],
    "01.wrong-type": [RIGHT.replace("return inbox", "return inbox.tolist()")],
    "01.raises": [body("return 1 / 0")],
    "01.import": ["import sys\nsys.exit(0)\n" + RIGHT],
}  # fmt: skip


@pytest.fixture(scope="module")
def ready() -> None:
    """The process that starts ranks is there."""
    assert verdict(RIGHT).passed


@pytest.mark.parametrize(
    ("diagnosis", "source"), [(d, s) for d, sources in BAD.items() for s in sources]
)
def test_what_ends_badly_gets_a_verdict_and_the_next_check_works(
    diagnosis: str, source: str, ready
) -> None:
    """A hang ends by itself, and all play with it: no other case is waited for."""
    got = verdict(source)
    assert got.diagnosis == diagnosis, str(got)
    assert got.points == 0
    plays = [play for level in got.levels.values() for play in level.plays]
    assert sum(isinstance(play.error, Hang) for play in plays) == (got.diagnosis == "01.hangs")
    assert verdict(RIGHT).passed


def test_megabytes_of_output(capfd: pytest.CaptureFixture[str]) -> None:
    noisy = RIGHT.replace("    if partner", "    print('x' * 3_000_000)\n    if partner", 1)
    got = verdict(noisy)
    assert got.passed, str(got)
    assert len(capfd.readouterr().out) < 1000


def test_global_state_stays_where_it_was_changed() -> None:
    import torch

    changed = RIGHT.replace("    if partner", "    torch.set_default_dtype(torch.float64)\n"
                            "    torch.set_grad_enabled(False)\n    if partner", 1)  # fmt: skip
    verdict(changed)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert verdict(RIGHT).passed


def test_state_that_is_kept_from_call_to_call() -> None:
    kept = """
box = {}

def exchange(mine, partner):
    outbox = mine.contiguous()
    inbox = box.setdefault(outbox.shape, torch.empty_like(outbox))
    going = dist.isend(outbox, partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
"""
    got = verdict(kept)
    assert not got.levels["core"].passed, str(got)


def test_an_unknown_name() -> None:
    def ring_allreduce(tensor: object) -> None: ...

    with pytest.raises(CheckFailed, match="did you mean ring_all_reduce"):
        check(ring_allreduce)
    with pytest.raises(TypeError, match="takes a function"):
        check(3)  # type: ignore[arg-type]


def test_what_a_notebook_shows() -> None:
    def exchange(mine, partner):  # type: ignore[no-untyped-def]
        return mine.clone()

    with pytest.raises(CheckFailed) as caught:
        check(exchange)
    shown = caught.value._render_traceback_()
    assert shown[0] == "01.1 exchange: 0 of 100 points"
    assert any("01.nothing-sent" in line for line in shown)
    assert not any("check.py" in line for line in shown)

    def in_order(work):  # type: ignore[no-untyped-def]
        raise NotImplementedError("not written yet")

    with pytest.raises(CheckFailed) as caught:
        check(in_order)
    assert caught.value._render_traceback_() == ["01.3 in_order: not written yet"]


def test_a_right_answer_from_a_notebook_and_a_stable_text() -> None:
    import torch
    import torch.distributed as dist

    space = {"torch": torch, "dist": dist, "__name__": "__main__"}
    exec(RIGHT, space)
    first = check(space["exchange"])  # type: ignore[arg-type]
    assert first.passed
    assert repr(first).startswith("01.1 exchange: passed")
    assert repr(first) == repr(check(space["exchange"]))  # type: ignore[arg-type]
    wrong = body("return mine.clone() + 1")
    assert str(verdict(wrong)) == str(verdict(wrong))


def test_one_line_for_what_several_ranks_do_and_none_too_wide_for_a_notebook() -> None:
    text = str(verdict(RIGHT.replace("return inbox", "mine.copy_(inbox)\n    return mine")))
    assert text.count("what is returned shares memory with an argument") == 1
    assert "ranks 0, 1: what is returned shares memory with an argument" in text
    assert max(map(len, text.splitlines())) <= 106
    assert "\n01.changes-argument: The caller's tensor is to stay as it was" in text


def test_the_smallest_case() -> None:
    large = RIGHT.replace("    if partner", "    if mine.numel() > 3:\n        mine = -mine\n"
                          "    if partner", 1)  # fmt: skip
    got = verdict(large)
    level = got.first_failing
    assert level is not None
    assert level.play is not None
    assert (level.play.case.length, level.play.case.calls) == (4, 1), str(got)


def test_the_case_that_is_shown_shows_the_difference() -> None:
    dealt = "def my_share(n):\n    return range(dist.get_rank(), n, dist.get_world_size())\n"
    got = verdict(dealt, "my_share")
    assert got.diagnosis == "00.interleaved", str(got)
    assert got.first_failing is not None
    for finding in got.first_failing.findings:
        assert list(finding.got) != list(finding.want), str(got)


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    path = tmp_path / "answer.py"
    path.write_text(RIGHT)
    return path


def test_the_command_line(answer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "exchange", str(answer), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["levels"] == {"core": "passed", "sturdy": "passed"}
    answer.write_text("def exchange(mine, partner):\n    return mine.clone()\n")
    assert main(["check", "exchange", str(answer), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["passed"], said["points"], said["diagnosis"]) == (False, 0, "01.nothing-sent")
    assert said["case"]["ranks"] == 2
    assert said["case"]["values"][0]["expected"]
    assert said["hint"]
    answer.write_text(
        "def exchange(mine, partner):\n    raise NotImplementedError('not written yet')"
    )
    assert main(["check", "exchange", str(answer)]) == 1
    assert capsys.readouterr().out == "01.1 exchange: not written yet\n"


@pytest.mark.parametrize("text", ["def other(): pass\n", "def exchange(:\n", "\udcff", None])
def test_nothing_to_check(
    text: str | None, answer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer.unlink()
    if text is not None:
        answer.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["check", "exchange", str(answer)]) == 2
    assert main(["check", "no_such_exercise", str(answer)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2
