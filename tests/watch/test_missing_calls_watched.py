"""A call that one rank leaves out is told of a watched job as of run(); what is right is let be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from watched_jobs import ROOT, start

pytestmark = pytest.mark.slow
sys.path.append(folder := str(ROOT / "tests" / "ranks"))
missing_calls = pytest.importorskip("missing_calls")

JOB = """
    import sys
    import torch.distributed as dist
    import missing_calls

    dist.init_process_group("gloo")
    for name in sys.argv[2:]:
        getattr(missing_calls, name)(sys.argv[1] == "right")
    dist.destroy_process_group()
"""
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), folder])}
NAMES = [program.__name__ for program in missing_calls.PROGRAMS]
ALL = os.environ.get("COURSE_LIB_ALL_JOBS")  # takes two minutes


@pytest.mark.parametrize(
    "name", NAMES if ALL else ["batch_less", "steps_of_its_own", "objects_on_one_rank"]
)
def test_a_call_that_is_missing_is_told_as_that(tmp_path: Path, name: str):
    said = start(tmp_path, JOB, "wrong", name, options=["--end"], env=PATHS).finish().said
    program = getattr(missing_calls, name)
    assert [part for part in missing_calls.PROGRAMS[program] if part not in said] == [], said
    if missing_calls.LEFT_OUT in said:
        assert [cure for cure in missing_calls.CURES_OF_OTHERS if cure in said] == [], said


def test_where_no_call_is_missing_nothing_is_told(tmp_path: Path):
    done = start(tmp_path, JOB, "right", *NAMES, options=["--end"], env=PATHS).finish()
    assert (done.codes, done.said) == ([0, 0], "")


PADDED = """
    import time
    import torch, torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    own, scratch = torch.empty(4), torch.empty(4)
    dist.all_gather({slots}, torch.full((4,), float(rank)))
    time.sleep(4)  # long enough to be told and ended
    print("done")
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_list_that_is_filled_up_is_right_and_one_tensor_for_all_ends_no_job(
    tmp_path: Path, wrong: bool
):
    """Muon fills the list of its last all_gather up with one tensor, which nobody reads."""
    slots = "[scratch] * 3" if wrong else "[own, scratch, scratch]"
    job = start(tmp_path, PADDED.format(slots=slots), size=3, options=["--end"]).finish()
    assert job.codes == [0, 0, 0]
    assert ("lets all_gather fill one tensor 3 times" in job.said) is wrong
    assert "ended now" not in job.said
