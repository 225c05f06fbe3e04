"""Versions that are too old: said in one sentence that names the way out."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import course_lib
from course_lib import CourseError, run
from course_lib.__main__ import main
from course_lib.versions import OLDEST_PYTHON, OLDEST_TORCH, UPGRADE, old_torch

ROOT = Path(__file__).resolve().parents[2]
OLD = f"torch 2.15 or later is needed, and this is 2.9.1: {UPGRADE}"


def test_pip_is_told_the_same_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python, torch_ = (".".join(map(str, version)) for version in (OLDEST_PYTHON, OLDEST_TORCH))
    assert project["requires-python"] == f">={python}"
    assert f"torch>={torch_}; python_version >= '{python}'" in project["dependencies"]


@pytest.mark.parametrize("version", ["2.15.0", "2.15.0a0+git1", "2.16.1+cpu", "3.0.0"])
def test_what_is_new_enough_is_not_complained_about(version):
    assert old_torch(version) == ""


def test_run_says_what_to_do_about_an_old_torch(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    with pytest.raises(CourseError) as caught:
        run(dist.barrier, world_size=2)
    assert str(caught.value) == f"run() cannot start ranks: {OLD}"


@pytest.mark.slow
def test_simulate_says_so_where_what_it_builds_on_is_not_there():
    """In a process of its own, which has imported nothing of the simulator yet."""
    program = """
import torch, torch.distributed as dist
del dist.ProcessGroup.all_gather_single, dist.all_gather_single
del dist.distributed_c10d._register_pg_in_world
torch.__version__ = "2.9.1+cu128"
from course_lib import simulate
simulate(dist.barrier, world_size=2)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip().endswith(f"CourseError: simulate() cannot start ranks: {OLD}")


def test_an_old_python_is_named_wherever_one_begins(monkeypatch, capsys):
    sentence = "course_lib needs Python 3.11 or later, and this is Python "
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 10, 13))
        for name in course_lib.__all__:
            with pytest.raises(ImportError, match=sentence):
                course_lib.__getattr__(name)
        code = main(["check", "my_share", "answer.py"])
    assert code == 2
    assert capsys.readouterr().err.startswith(sentence)
