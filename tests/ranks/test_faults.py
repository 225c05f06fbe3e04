"""Every way in which a world can go wrong, provoked for real, and what is said of it."""

from __future__ import annotations

import pytest
import torch
from faults import FAULTS, Fault, nothing, provoke, wrong_with

from course_lib import Deadlock, Mismatch, run
from course_lib.trace import Line

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("impatient")]


@pytest.fixture(scope="module", autouse=True)
def started():
    """The first run of a process takes longest, longer than some timeouts here."""
    run(nothing, world_size=2)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_told(fault: Fault):
    assert wrong_with(fault, provoke(fault)) == ""


def test_the_judge_can_see():
    """A wrong class, a wrong property, another rank, a line that is not shown, gloo's words."""
    says = ("torch.ones(4)", "torch.ones(5)")
    fault = Fault("lengths", Mismatch, torch.ones, (0, 1), says, what="shape")
    lines = [Line("cell [1]", n, source) for n, source in enumerate(says)]
    text = "\n".join(lines)
    assert wrong_with(fault, Mismatch(text, what="shape", ranks=(0, 1), lines=lines)) == ""
    assert wrong_with(fault, None)
    assert wrong_with(fault, Deadlock(text))
    assert wrong_with(fault, Mismatch(text, what="dtype", ranks=(0, 1), lines=lines))
    assert wrong_with(fault, Mismatch(text, what="shape", ranks=(0, 2), lines=lines))
    assert wrong_with(fault, Mismatch(lines[0], what="shape", ranks=(0, 1), lines=lines))
    assert wrong_with(fault, Mismatch(text + " SIGABRT", what="shape", ranks=(0, 1), lines=lines))
