"""A call that one rank leaves out is told of a watched job as of run()."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import missing_calls
from watched_jobs import ROOT, start

pytestmark = pytest.mark.slow

JOB = """
    import sys
    import torch.distributed as dist
    from programs import missing_calls

    dist.init_process_group("gloo")
    for name in sys.argv[2:]:
        getattr(missing_calls, name)(sys.argv[1] == "right")
    dist.destroy_process_group()
"""
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def test_a_call_that_is_missing_is_told_as_that(tmp_path: Path):
    """Of the others: tests/soak."""
    is_told(tmp_path, "objects_on_one_rank")


def is_told(tmp_path: Path, name: str) -> None:
    said = start(tmp_path, JOB, "wrong", name, options=["--end"], env=PATHS).finish().said
    program = getattr(missing_calls, name)
    assert [part for part in missing_calls.PROGRAMS[program] if part not in said] == [], said
    if missing_calls.LEFT_OUT in said:
        assert [cure for cure in missing_calls.CURES_OF_OTHERS if cure in said] == [], said


PADDED = """
    import time
    import torch, torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_gather([torch.empty(4)] * 3, torch.full((4,), float(rank)))
    time.sleep(4)  # long enough to be told and ended
    print("done")
    dist.destroy_process_group()
"""


def test_one_tensor_for_all_outputs_is_told_and_ends_no_job(tmp_path: Path):
    job = start(tmp_path, PADDED, size=3, options=["--end"]).finish()
    assert job.codes == [0, 0, 0]
    assert "lets all_gather fill one tensor 3 times" in job.said
    assert "ended now" not in job.said
