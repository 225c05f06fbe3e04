"""The walls around a rank, seen from courses in unusual places."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import HONEST, TESTS, attack
from processes import wait_for

from course_lib.versions import FOR_LEARNERS, PACKAGES
from course_staff.grading import walled_rank
from course_staff.grading.walls import UNDEFENDED

ROOT = TESTS.parent
JUDGE = """
import json, os, signal, sys
from dataclasses import replace
import course_lib
from course_staff.grading import carried_player
from course_staff.grading.walls import Limits
from course_staff.grading.processes import RankServer, start_rank

whole, folder = carried_player.find("my_share"), os.environ["TMPDIR"]
carried_player.find = lambda _: replace(whole, core=lambda rng: whole.core(rng)[:2],
                                 sturdy=lambda rng: whole.sturdy(rng)[:1])
with RankServer() as ranks:
    for source in json.load(sys.stdin):
        order = carried_player.Order("my_share", source, [], [])
        record = carried_player.grade_answer(order, ranks.address, Limits(play_seconds=20))
        print(json.dumps([course_lib.__file__, record]), flush=True)
    before = set(os.listdir(folder))
    life, talk = start_rank(ranks.address)
    while not any("course_lib-" in name for name in set(os.listdir(folder)) - before):
        continue
    os.kill(os.getpid(), signal.SIGKILL)
"""


READS = """
from course_lib.data import DIGITS

def my_share(n_items):
    assert list(DIGITS.rglob("*-ubyte")), "what comes with the course is not there"
    return honest(n_items)
"""


@pytest.mark.slow
def test_a_course_below_tmp_is_graded_as_any_other_and_one_that_is_killed_leaves_no_folder(
    tmp_path: Path, standing
) -> None:
    """Ranks, which have a /tmp of their own, find what comes with the course, and stand behind the
    same walls. Neither the killed grading's folder is left nor that of a rank that was alive.

    It lies where packages are installed, which ranks may read, and an older wheel beside it: of
    neither can they read what is expected.
    """
    with tempfile.TemporaryDirectory(prefix="course-copy-", dir="/tmp") as folder:
        course, wheel = Path(folder, "site-packages"), Path(folder, "dist-packages")
        path = os.pathsep.join([str(course), str(wheel)])
        environ = os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp_path)}
        for name in PACKAGES:
            shutil.copytree(ROOT / name, course / name)
        for name in FOR_LEARNERS:
            shutil.copytree(ROOT / name, wheel / name)
        words, pipes = [sys.executable, "-c", JUDGE], {"capture_output": True, "text": True}
        given = {"input": json.dumps([HONEST + READS, attack("my_share", "asks_the_other_houses")])}
        done = subprocess.run(words, cwd=course, env=environ, timeout=150, **given, **pipes)
        assert done.returncode == -signal.SIGKILL, done.stderr
        honest, attacks = map(json.loads, done.stdout.splitlines())
        assert honest[0] == str(course / "course_lib" / "__init__.py")
        assert honest[1]["passed"], honest
        assert attacks[1]["points"] == 0 or "files" not in standing, attacks
        for _, record in (honest, attacks):
            assert record["undefended"].keys() == UNDEFENDED.keys() - standing
        assert wait_for(lambda: not ours(tmp_path), 30), "the fork server tidies up"


def ours(folder: Path) -> list[Path]:
    """What is in a folder for temporary files, but for a cache of torch's."""
    return [path for path in folder.iterdir() if not path.name.startswith("torchinductor")]


def test_what_a_rank_of_the_same_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """Process numbers come again; the keeper tidies up before it does anything else."""
    left = tmp_path / "scratch"
    left.mkdir()
    (left / "old").touch()
    pid = os.fork()
    if pid == 0:
        with open(os.devnull) as talk, contextlib.suppress(BaseException):
            walled_rank.walls.separate = lambda: os._exit(9)  # the next thing that it does
            walled_rank.main(0, [talk.fileno()], str(left))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert list(left.iterdir()) == []
