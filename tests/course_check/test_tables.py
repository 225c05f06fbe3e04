"""What breaks if somebody reorders the usual diagnoses, or if torch changes its _dynamo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from course_check import usual_diagnoses as usual
from course_check.cases import Case
from course_check.exercise import Finding, Play, Prepared
from course_lib.errors import CourseError, Deadlock, Hang, Mismatch, RankFailed, Wait

ROOT = Path(__file__).parents[2]


def ended_by(error: CourseError, *kinds: str) -> Play:
    """A judged play of two ranks that ended so, with findings of these kinds besides."""
    found = [Finding(kind) for kind in (type(error).__name__, *kinds)]
    return Play(Case(2), Prepared([]), error=error, findings=found)


def waiting(*calls: str, cycle: tuple[int, ...] = (0, 1)) -> Play:
    waits = [Wait(rank, call, None) for rank, call in enumerate(calls)]
    return ended_by(Deadlock("ranks wait", waits=waits, cycle=cycle))


def raised(text: str) -> Play:
    return ended_by(RankFailed(f"rank 0: {text}", rank=0, kind="RuntimeError"))


# A play, the diagnosis that is told of it, and another one that is true of it and says less.
TOLD_BEFORE = [
    (waiting("send(dst=1)", "send(dst=0)"), "send-first", "deadlock"),
    (waiting("recv(src=1)", "recv(src=0)"), "receive-first", "deadlock"),
    (waiting("all_reduce()", "recv(src=0)"), "not-everybody", "deadlock"),
    (waiting("send(dst=1)", cycle=()), "waits-in-vain", "deadlock"),
    (waiting("send(dst=1)", "send(dst=0)", cycle=()), "send-first", "waits-in-vain"),
    (ended_by(Mismatch("recv of another dtype", what="dtype")), "two-dtypes", "mismatch"),
    (raised("list index out of range"), "index", "raises"),
    (raised("one of the caller's tensors has changed"), "changes-argument", "raises"),
    (raised("Valid ranks are 0 and 1"), "no-such-rank", "raises"),
]


@pytest.mark.parametrize(("play", "told", "also"), TOLD_BEFORE)
def test_the_particular_is_told_before_the_general(play: Play, told: str, also: str) -> None:
    """See Note [The order of the tables]: were it turned round, ``also`` would be the hint."""
    assert usual.ERRORS[told](play)
    assert usual.ERRORS[also](play), "this pair need not be kept in order any more"
    diagnosis = usual.first_true([play], usual.ERRORS)
    assert diagnosis is not None and diagnosis.id == told


def test_what_ended_all_play_is_told_before_what_else_is_wrong() -> None:
    play = ended_by(Hang("nothing came back"), "never waited for")
    diagnosis = usual.first_true([play], usual.CUT_OFF, usual.ERRORS)
    assert diagnosis is not None and diagnosis.id == "hangs"
    assert usual.first_true([play], usual.ERRORS).id == "never-waited"  # type: ignore[union-attr]


# ---- Note [The stand-in for torch._dynamo] -------------------------------------------------------

SCRIPT = """
import sys, torch
from course_check.light import NAME, _NoDynamo, lightly
assert NAME not in sys.modules, "torch imports it by itself: nothing is gained any more"
with lightly():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    torch.optim.SGD([weight], lr=0.5).step()
    assert isinstance(sys.modules[NAME], _NoDynamo), "an optimizer asks for more than stands in"
    ddp = torch.nn.parallel.DistributedDataParallel
assert NAME not in sys.modules and "_dynamo" not in vars(torch)
with lightly():
    torch._dynamo.reset()
    real = sys.modules[NAME]
    assert not isinstance(real, _NoDynamo)
    assert torch._dynamo is real
assert sys.modules[NAME] is real
real.config.error_on_nested_fx_trace, real.utils.get_optimize_ddp_mode
real.disable, real.graph_break
"""


@pytest.mark.slow
def test_a_check_does_without_dynamo_until_somebody_asks_for_more() -> None:
    """It saves seconds in each process. If torch asks the stand-in for another name, all goes on,
    slowly; if a name that it has is gone from torch, this says which."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
