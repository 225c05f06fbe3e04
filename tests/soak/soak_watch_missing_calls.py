"""Each call that one rank leaves out is told of a watched job. Where none is, nothing is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs.missing_calls import CURES_OF_OTHERS, LEFT_OUT, PROGRAMS
from watched_jobs import ROOT, start

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
NAMES = {program.__name__: parts for program, parts in PROGRAMS.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_missing_is_told_as_that(tmp_path: Path, name: str):
    said = start(tmp_path, JOB, "wrong", name, options=["--end"], env=PATHS).finish().said
    assert [part for part in NAMES[name] if part not in said] == [], said
    if LEFT_OUT in said:
        assert [cure for cure in CURES_OF_OTHERS if cure in said] == [], said


def test_where_no_call_is_missing_nothing_is_told(tmp_path: Path):
    done = start(tmp_path, JOB, "right", *NAMES, options=["--end"], env=PATHS).finish()
    assert (done.codes, done.said) == ([0, 0], "")
