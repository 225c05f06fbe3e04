"""Each call that one rank leaves out is told of a watched job. Where none is, nothing is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs.missing_calls import PROGRAMS
from test_missing_calls_watched import JOB, PATHS, is_told
from watched_jobs import start

NAMES = [program.__name__ for program in PROGRAMS]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_missing_is_told_as_that(tmp_path: Path, name: str):
    is_told(tmp_path, name)


def test_where_no_call_is_missing_nothing_is_told(tmp_path: Path):
    done = start(tmp_path, JOB, "right", *NAMES, options=["--end"], env=PATHS).finish()
    assert (done.codes, done.said) == ([0, 0], "")
