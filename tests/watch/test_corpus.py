"""Some jobs of tests/soak/soak_watch_jobs.py, once, their ranks started by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchrun_jobs import JOBS, Job, play

BROKEN = ("collective_on_one_rank", "send_send")
RIGHT = {"exits_apart": "done 0\n", "sparse": "gradient [2.0, 2.0,", "subgroups": "[1.0, 1.0]"}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", BROKEN)
def test_broken_jobs_are_told_as_what_they_are(name: str, tmp_path: Path):
    job = Job.of(JOBS / "broken" / f"{name}.py")
    course = play(job, tmp_path, agents=False)
    assert course.wrong_with(job) == [], course.said
    assert course.told_after is not None  # in seconds, which the soak holds


@pytest.mark.parametrize("name", RIGHT)
def test_right_jobs_come_through_in_silence(name: str, tmp_path: Path):
    job = Job.of(JOBS / "right" / f"{name}.py")
    course = play(job, tmp_path, agents=False)
    assert course.wrong_with(job) == [], course.said
    assert course.codes == [0] * job.ranks
    assert RIGHT[name] in course.printed
