"""The walls around a rank, seen from courses in unusual places."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import TESTS

from course_lib.grading import keeper
from course_lib.grading.processes import RankServer, start_rank

ROOT = TESTS.parent
JUDGE = """
import json, sys
from dataclasses import replace
import course_lib
from course_lib.grading import judge as judging
from course_lib.grading.walls import Limits
from course_lib.grading.processes import RankServer

if __name__ == "__main__":
    whole = judging.find("my_share")
    judging.find = lambda _: replace(whole, core=lambda rng: whole.core(rng)[:2],
                                     sturdy=lambda rng: whole.sturdy(rng)[:1])
    order = judging.Order("my_share", sys.stdin.read(), [], [])
    with RankServer() as ranks:
        record = judging.judge(order, ranks.address, Limits(), judging.Timing(20, 90))
    print(json.dumps([course_lib.__file__, record]))
"""


READS = """
from course_lib.data import DIGITS

def my_share(n_items):
    assert list(DIGITS.rglob("*-ubyte")), "what comes with the course is not there"
    rank, world = dist.get_rank(), dist.get_world_size()
    size, larger = divmod(n_items, world)
    start = rank * size + min(rank, larger)
    return range(start, start + size + (rank < larger))
"""


@pytest.fixture
def copied() -> Iterator[Path]:
    """A copy of the library below /tmp, where ranks have a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="course-copy-", dir="/tmp") as folder:
        shutil.copytree(ROOT / "course_lib", Path(folder) / "course_lib",
                        ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
        yield Path(folder)


@pytest.mark.slow
def test_a_course_below_tmp_is_graded_as_any_other(copied: Path, judged) -> None:
    """Its ranks find what comes with the course, and stand behind the same walls."""
    script = copied / "judge_one.py"
    script.write_text(JUDGE)
    done = subprocess.run([sys.executable, str(script)], input=READS, cwd=copied, text=True,
                          env=os.environ | {"PYTHONPATH": str(copied)}, capture_output=True,
                          timeout=150)  # fmt: skip
    assert done.returncode == 0, done.stderr
    where, record = json.loads(done.stdout.splitlines()[-1])
    assert where == str(copied / "course_lib" / "__init__.py")
    assert record["passed"], record
    assert record["undefended"] == judged("my_share", READS)["undefended"]


def test_what_a_rank_of_the_same_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """Process numbers come again; the keeper tidies up before it does anything else."""
    left = tmp_path / "scratch"
    left.mkdir()
    (left / "old").touch()
    pid = os.fork()
    if pid == 0:
        with open(os.devnull) as talk, contextlib.suppress(BaseException):
            keeper.walls.separate = lambda: os._exit(9)  # the next thing that it does
            keeper.main([talk.fileno()], str(left))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert list(left.iterdir()) == []


def test_ranks_that_live_to_the_end_of_a_grading_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grading that is killed closes no socket of a rank before its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with RankServer() as started:
        life, talk = start_rank(started.address)
        with life, talk:
            while not list(tmp_path.glob("course_lib-*")):
                time.sleep(0.01)  # nobody says that it is there
            started.server.release()
            started.server._process.wait(60)
    assert list(tmp_path.glob("course_lib-*")) == []
