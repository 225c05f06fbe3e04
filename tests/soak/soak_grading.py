"""Grading at length: the zoo by the judge, and a class of sixty with two interruptions.

COUNT=200 make soak SOAK_ARGS="-k interrupted"    a larger class; sixty without COUNT
make soak SOAK_ARGS="-k 'grading and zoo and 05'"  the zoo of one lesson
"""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS), str(TESTS / "course_staff"), str(TESTS / "soak")]

import zoo  # noqa: E402
from processes import gone  # noqa: E402
from roster import Handed, roster  # noqa: E402
from soak_ranks_common import count, report  # noqa: E402

from course_exercises.catalogue import exercises  # noqa: E402
from course_staff import manifest  # noqa: E402
from course_staff.grading.carried_player import Order, grade_answer  # noqa: E402
from course_staff.grading.processes import RankServer  # noqa: E402
from course_staff.grading.walls import Limits  # noqa: E402

RELEASE = manifest.read(ROOT / "notebooks" / "manifest.json")
LESSONS = sorted({e.number[:2] for e in exercises().values()})


# ---- the zoo ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lesson", LESSONS)
def test_grading_the_zoo_gives_the_diagnoses_of_check(lesson: str) -> None:
    different = []
    with RankServer() as ranks:
        mine = [
            name for name, e in exercises().items() if e.number.startswith(lesson) and not e.on_gpus
        ]
        for name, way in ((n, w) for n in mine for w in (*zoo.right(n), *zoo.wrong(n))):
            order = Order(name, zoo.source(name, way), [], [])
            limits = Limits(play_seconds=30, exercise_seconds=600)
            record = grade_answer(order, ranks.address, limits)
            wanted = zoo.wrong(name)[way].diagnosis if way in zoo.wrong(name) else None
            if record["diagnosis"] != wanted or record["passed"] != (wanted is None):
                different.append(f"{name}/{way}: {record['diagnosis']}, not {wanted}")
    report(f"grading_zoo_{lesson}", different=different)
    assert not different


# ---- a class ------------------------------------------------------------------------------------


def hand_in(inbox: Path, number: int) -> dict[str, Handed]:
    """A class of this size: the roster again and again, under names of their own."""
    class_ = list(roster())
    inbox.mkdir()
    chosen = [class_[n % len(class_)] for n in range(number)]
    handed = {f"s{n:03}_{one.name}": one for n, one in enumerate(chosen)}
    for name, one in handed.items():
        (inbox / f"{name}.ipynb").write_text(one.text, encoding="utf-8")
    return handed


def surprises(out: Path, handed: dict[str, Handed]) -> list[str]:
    """Where grades.csv differs from what was predicted."""
    rows = {row["submission"]: row for row in csv.DictReader((out / "grades.csv").open())}
    assert rows.keys() == handed.keys()
    worth = {i.exercise: i.points for items in RELEASE.lessons.values() for i in items}
    found = []
    for name, one in handed.items():
        row, total = rows[name], 0.0
        if not one.predicted and "not a notebook" not in row["problem"]:
            found.append(f"{name}: {row['problem']!r}")
        for exercise, (share, why) in one.predicted.items():
            points = round(worth[exercise] * share, 2)
            total += points
            said = [row[exercise], row[f"{exercise} diagnosis"], row[f"{exercise} reason"]]
            told = why in said[1:] or (len(why) > 12 and said[2].startswith(why))
            if float(said[0] or -1) != points or not (told or (not why and not said[2])):
                found.append(f"{name}: {exercise} {said}, not {points:g} {why}")
        if float(row["points"]) != round(total, 2):
            found.append(f"{name}: {row['points']} in all, not {total:g}")
    return found


def hears_interrupts() -> None:
    """A job that a shell has put into the background ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Grading:
    """The command as a process."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "course_lib", "grade", *words],
            cwd=ROOT,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=hears_interrupts,
        )
        self.lines: list[str] = []
        self.seen: set[int] = set()  # processes that came of it

    def graded(self) -> Iterator[str]:
        """Names as they are graded; everything that is said is kept in ``lines``."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if (told := re.match(r"\[\d+/\d+\] (\S+): ", line)) and "graded before" not in line:
                with suppress(psutil.NoSuchProcess):
                    children = psutil.Process(self.process.pid).children(recursive=True)
                    self.seen |= {child.pid for child in children}
                yield told[1]


def test_grading_that_is_interrupted_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    """SIGINT after a fifth, SIGKILL of the command alone after half, then to the end."""
    number = count(60)
    handed = hand_in(tmp_path / "inbox", number)
    words = (str(tmp_path / "inbox"), "--out", str(tmp_path / "out"), "--jobs", "2")
    start, done, left = time.monotonic(), Counter[str](), []
    for stop_after, how in ((number // 5, signal.SIGINT), (number // 2, signal.SIGKILL), (0, None)):
        run = Grading(*words)
        for name in run.graded():
            done[name] += 1
            if how is not None and done.total() == stop_after:
                run.process.send_signal(how)
        code = run.process.wait()
        assert code == {signal.SIGINT: 130, signal.SIGKILL: -9, None: 0}[how], run.lines
        left += gone(run.seen, 15.0)
    seconds = time.monotonic() - start
    found = surprises(tmp_path / "out", handed)
    report("grading", submissions=number, seconds=round(seconds), left=left, surprises=found)
    assert not found
    assert left == [], "processes that outlive the command"
    # What SIGINT lets come to its end is told by the next run as graded before; nothing is twice.
    assert max(done.values()) == 1
