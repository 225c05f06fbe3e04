"""Jobs of torchrun, broken in the ways of the field and right in many: what watch says of each.

COUNT=3 make soak SOAK_ARGS="-k watch_jobs"     a short version; 20 of each by default
"""

from __future__ import annotations

from pathlib import Path

import pytest
from soak_ranks_common import count, median, report
from torchrun_jobs import Course, Job, broken_jobs, play, right_jobs

SOONEST, LATEST = -0.5, 3.0  # seconds from cause to sentence, where the logs can tell it
NOTES = "loader_never_delivers"  # nobody can know that it is for ever


def name(job: Job) -> str:
    return job.path.stem


@pytest.mark.parametrize("job", broken_jobs(), ids=name)
def test_broken_jobs_are_told_as_what_they_are(job: Job, tmp_path: Path):
    courses = [play(job, tmp_path / str(number)) for number in range(count(20))]
    wrong = [found for course in courses if (found := course.wrong_with(job))]
    after = [course.told_after for course in courses if course.told_after is not None]
    report(
        f"watch-broken-{name(job)}",
        runs=len(courses),
        told_rightly=len(courses) - len(wrong),
        median_seconds=median(after),
        max_seconds=round(max(after, default=0.0), 3),
        wrong=wrong,
    )
    assert wrong == [], courses[0].said
    assert all(SOONEST <= seconds <= LATEST for seconds in after) or name(job) == NOTES, after


@pytest.mark.parametrize("job", right_jobs(), ids=name)
def test_right_jobs_come_through_as_if_it_were_not_there(job: Job, tmp_path: Path):
    plain = play(job, tmp_path / "plain", watched=False)
    courses = [play(job, tmp_path / str(number)) for number in range(count(20))]
    wrong = [found for course in courses if (found := wrong_beside(plain, course, job))]
    report(
        f"watch-right-{name(job)}",
        runs=len(courses),
        as_without=len(courses) - len(wrong),
        seconds_without=round(plain.seconds, 2),
        median_seconds=median([course.seconds for course in courses]),
        wrong=wrong,
    )
    assert wrong == [], courses[0].said


def wrong_beside(plain: Course, course: Course, job: Job) -> list[str]:
    """What is not as without watch."""
    wrong = course.wrong_with(job)
    if course.codes != plain.codes:
        wrong.append(f"ended with {course.codes}, not {plain.codes}")
    if course.characters != plain.characters:
        wrong.append(f"printed {course.printed!r}, not {plain.printed!r}")
    return wrong


def test_the_judge_sees_what_it_has_to_find(tmp_path: Path):
    """A right job's course is wrong for a broken one, and a plain one tells nothing."""
    right = next(job for job in right_jobs() if name(job) == "never_destroys")
    broken = next(job for job in broken_jobs() if name(job) == "One_rank_raises")
    course = play(right, tmp_path / "right")
    assert "told nothing" in course.wrong_with(broken)
    plain = play(broken, tmp_path / "plain", watched=False)
    assert "told nothing" in plain.wrong_with(broken)
    assert wrong_beside(plain, course, right)
