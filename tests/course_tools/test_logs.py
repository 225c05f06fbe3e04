"""What is read from logs alone: parts of long ones, and whose fault it was."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from course_tools.watch import job as jobs
from course_tools.watch import job_folder as folders
from course_tools.watch.job import Job
from course_tools.watch.job_folder import LogWriter, append_exit
from course_tools.watch.reports import report_error, report_waiting
from course_tools.watch.watch_command import main

LOST = "[pair.cc:561] Connection closed by peer [127.0.0.1]:4321"


class Rank:
    """Writes a log as a rank does."""

    def __init__(self, folder: Path, number: int, size: int = 2, at: float = 0.0) -> None:
        self.folder, self.number, self.seq = folder, number, 0
        self.log = LogWriter(folder, number)
        self.log.append("process", "a machine", 1, 1, at or time.time())
        self.log.append("group", "0", tuple(range(size)))
        self.log.append("line", 0, "train.py", 10 + number, "dist.all_reduce(x)", "main")

    def issue(
        self,
        op: str = "all_reduce",
        peer: int | None = None,
        group: str = "0",
        size: int = 4,
        at: float = 0.0,
        dropped: bool = False,
    ) -> None:
        shape, waited = (size // 4,), not dropped
        what = op, peer, group, size, "float32", shape, at, None, 0, 0, "SUM", dropped, waited
        self.log.append("issued", *what, size, size, True, self.seq)
        self.seq += 1

    def call(self, *what: Any, **more: Any) -> None:
        self.issue(*what, **more)
        self.log.append("ended", self.seq - 1, 0.1, None, True)

    def fail(self, kind: str, message: str, at: float, code: int = 1, asked=None) -> None:
        self.log.append("ending", "raised", at, kind, message, (), 1, "")
        self.end(code, asked)

    def end(self, code: int = 0, asked: float | None = None) -> None:
        append_exit(self.folder, self.number, code, asked)


def job_in(*folders: Path, size: int = 2) -> Job:
    job = Job([*folders], size)
    job.read()
    return job


def verdict(folder: Path, size: int = 2) -> str:
    error = job_in(folder, size=size).verdict()
    return f"{type(error).__name__}: {error}" if error else ""


def test_a_long_log_is_bounded_says_so_and_still_matches(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(folders, "MOST", 20_000)
    ranks = [Rank(tmp_path, number) for number in range(2)]
    for rank, more in zip(ranks, (0, 37), strict=True):
        for _ in range(1000 + more):
            rank.call()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 4
    assert sum(sizes) < 120_000
    for _ in range(37):
        ranks[0].call()
    for rank, op in zip(ranks, ("all_reduce", "barrier"), strict=True):
        rank.issue(op)
    job = job_in(tmp_path)
    assert job.dropped > 1500
    assert len(job.matcher.known) < 400
    assert "ranks 0 and 1 do not agree on the op: all_reduce and barrier" in str(job.verdict())


def test_messages_of_logs_that_begin_apart_still_meet(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(folders, "MOST", 20_000)
    ranks = [Rank(tmp_path, number) for number in range(2)]
    for _ in range(50):
        ranks[0].call("barrier", group="its own")
    for number in range(1000):
        for rank, op in zip(ranks, ("send", "recv"), strict=True):
            rank.call(op, 1 - rank.number, size=4 * (1 + number % 7))
    job = job_in(tmp_path)
    assert all(rank.log.before for rank in job.ranks)
    assert job.matcher.mismatch() is None
    assert job.matcher.find_missing(job.ranks[0].events[-1]) == ()


def test_who_waits_for_the_group_to_form_is_said_with_who_has_not_come(tmp_path: Path):
    Rank(tmp_path, 0, 3).log.append("flag", "forming", True)
    Rank(tmp_path, 1, 3).log.append("flag", "forming", False)
    job = job_in(tmp_path, size=3)
    said = report_waiting(job, 1.0, as_json=False).splitlines()
    assert said[2:5] == [
        "  rank 0 waits in init_process_group",
        "  rank 1 is somewhere",
        "  rank 2 has no log here",
    ]
    assert "--keep FOLDER, a folder that all of them share" in said[5]


def test_ranks_that_stand_alike_are_one_line_and_the_odd_one_is_first(tmp_path: Path):
    size = 256
    for number in range(size - 4):
        rank = Rank(tmp_path, number, size)
        rank.log.append("line", 0, "train.py", 8 if number == 7 else 20, "", "main")
        rank.call()
        rank.issue("barrier" if number == 7 else "all_reduce")
        os.close(rank.log._fd)
    job = job_in(tmp_path, size=size)
    said = report_waiting(job, 1.0, as_json=False).strip().splitlines()
    assert said[1:4] == [
        "  rank 7 waits in barrier(SUM)   train.py, line 8",
        f"  ranks 0–6, 8–{size - 5} wait in all_reduce(SUM)   train.py, line 20",
        f"  ranks {size - 4}–{size - 1} have no log here",
    ]
    assert len(said) == 5
    told = verdict(tmp_path, size)
    assert len(told.splitlines()) < 25


def test_where_a_helper_makes_the_call_its_caller_is_told(tmp_path: Path):
    (tmp_path / "train.py").write_text("step()\n" * 9)
    stack = "Current thread 0x1 (most recent call first):\n" + "".join(
        f'  File "{tmp_path}/{file}", line {line} in {function}\n'
        for file, line, function in [("ring.py", 7, "commit"), ("train.py", 3, "<module>")]
    )
    for number, peer in ((0, 1), (1, 0)):
        (tmp_path / f"rank-{number}.stack").write_text(stack)
        Rank(tmp_path, number).issue("recv", peer)
    job = job_in(tmp_path)
    error = job.verdict()
    assert error
    assert (
        report_error(error, job, False)
        .rstrip()
        .endswith("\n  ranks 0–1 have come from   train.py, line 3:  step()")
    )


def test_a_reader_follows_a_log_through_its_parts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(folders, "MOST", 20_000)
    began = time.time() - 1
    ranks = [Rank(tmp_path, number) for number in range(2)]
    job = Job([tmp_path], 2, began)
    for _ in range(30):
        for rank in ranks:
            for _ in range(50):
                rank.call()
        job.read()
    assert [len(rank.events) for rank in job.ranks] == [1500, 1500]
    assert [rank.blocked_in for rank in job.ranks] == [None, None]
    assert job.matcher.mismatch() is None


def test_what_has_met_is_forgotten_and_the_rest_still_meets(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("course_tools.watch.job._MANY", 500)
    ranks = [Rank(tmp_path, number) for number in range(2)]
    job = Job([tmp_path], 2, time.time() - 1)
    for _ in range(50):
        for rank in ranks:
            for _ in range(100):
                rank.call()
        job.read()
    assert len(job.matcher.known) <= 4400  # of 10,000
    assert job.matcher.mismatch() is None
    ranks[0].issue()
    job.read()
    assert job.matcher.find_missing(job.ranks[0].blocked_in) == (1,)
    ranks[1].issue("barrier")
    job.read()
    assert job.matcher.mismatch().ranks == (0, 1)


def test_logs_of_a_job_that_was_there_before_are_not_read(tmp_path: Path):
    Rank(tmp_path, 1, at=time.time() - 1000).call()
    job = Job([tmp_path], 2, time.time() - 1)
    job.read()
    assert job.seen == []


def test_a_work_that_nobody_waits_for_is_told_when_all_have_ended_well(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_MANY", 100)  # most of its calls are forgotten
    ranks = [Rank(tmp_path, number) for number in range(2)]
    job = Job([tmp_path], 2, 1.0)
    for number, rank in enumerate(ranks):
        rank.issue(dropped=number == 1)
        for _ in range(3000):
            rank.call()
    job.read()
    assert job.verdict() is None
    for rank in ranks:
        rank.end()
    job.read()
    assert job.ranks[1].events[1] is None
    assert str(job.verdict()).startswith("rank 1 never waits for its all_reduce(SUM).")


def test_a_victim_is_not_the_cause(tmp_path: Path):
    first, second = Rank(tmp_path, 0), Rank(tmp_path, 1)
    first.issue()
    first.fail("RuntimeError", LOST, at=5.0)
    second.fail("KeyError", "'lr'", at=6.0)
    assert verdict(tmp_path).startswith("RankFailed: rank 1 raised KeyError: 'lr'")


def test_a_rank_that_has_raised_waits_no_more(tmp_path: Path):
    """Its message to itself can never be met, and its Work was given up: no Deadlock."""
    for number in range(2):
        rank = Rank(tmp_path, number)
        rank.issue("send", number)
        rank.log.append("gave_up", 0, 4.0)
        rank.fail("RuntimeError", f"rank {number} cannot send to or from itself", at=5.0)
    told = verdict(tmp_path)
    assert "RankFailed: ranks 0 and 1 raised RuntimeError, rank 0 in these words: rank 0 " in told


def test_a_timeout_is_told_and_who_was_late_and_not_who_lost_its_peer(tmp_path: Path):
    """Rank 0 has made this call, too late, and is the first that raises."""
    saving, waiting = Rank(tmp_path, 0), Rank(tmp_path, 1)
    saving.call()
    saving.issue(at=9.0)
    saving.fail("RuntimeError", LOST, at=9.1)
    waiting.call()
    waiting.issue()
    waiting.log.append("gave_up", 1, 7.0)
    waiting.fail("RuntimeError", "[unbound_buffer.cc:78] Timed out waiting 2000ms for", at=9.2)
    told = verdict(tmp_path)
    assert "RankFailed: rank 1 raised RuntimeError: [unbound_buffer.cc:78] Timed out" in told
    assert "rank 0 made this call 2.0 s too late; until then it had last called all_reduce" in told
    assert "rank 0 fell over because of it." in told


def test_a_victim_of_one_that_has_returned_is_no_failure(tmp_path: Path):
    first, second = Rank(tmp_path, 0), Rank(tmp_path, 1)
    first.issue()
    first.fail("RuntimeError", LOST, at=5.0)
    second.end()
    assert "Deadlock: rank 0 waits for rank 1, which has already returned" in verdict(tmp_path)


def test_who_was_asked_to_end_is_no_cause(tmp_path: Path):
    first, second, third = (Rank(tmp_path, number, 3) for number in range(3))
    first.end(-15, asked=7.0)
    second.end(0, asked=7.0)
    assert verdict(tmp_path, 3) == ""
    third.end(-11)
    assert "rank 2 was killed by SIGSEGV" in verdict(tmp_path, 3)


def test_all_victims_say_who_was_missing_and_whose_logs_are(tmp_path: Path):
    first, second = Rank(tmp_path, 0, 3), Rank(tmp_path, 1, 3)
    first.issue()
    first.fail("RuntimeError", LOST, at=5.0)
    second.end(-15, asked=7.0)
    told = verdict(tmp_path, 3)
    assert "ranks 1 and 2 have not made its call all_reduce(SUM)" in told
    assert "rank 2 has no log here: none was begun, or" in told


def test_folders_of_two_machines_meet_by_number_and_not_by_time(tmp_path: Path, capsys):
    one, two = tmp_path / "one", tmp_path / "two"
    first, second = Rank(one, 0), Rank(two, 1)
    for rank, op in ((first, "all_reduce"), (second, "barrier")):
        rank.call()
        rank.issue(op)
    assert main(["--read", str(one), str(two)]) == 1
    assert "do not agree on the op: all_reduce and barrier" in capsys.readouterr().out
    assert verdict(one) == verdict(two) == ""


def test_an_interrupt_is_no_failure_whichever_process_heard_of_it_first(tmp_path: Path):
    for number in range(2):
        rank = Rank(tmp_path, number)
        rank.issue()
        rank.fail("KeyboardInterrupt", "", at=6.8 + number, code=-2, asked=7.0)
    assert verdict(tmp_path) == ""


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made",)


def test_a_strangers_log_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rank = Rank(tmp_path / "restart-0", 0)
    rank.log.append("outcome", pickle.dumps(Evil()))
    rank.end()
    verdict(tmp_path / "restart-0")
    assert not (tmp_path / "made").exists()


def test_who_called_sys_exit_is_named_and_not_who_waits(tmp_path: Path):
    waits, left = Rank(tmp_path, 0), Rank(tmp_path, 1)
    for rank in (waits, left):
        rank.call()
    waits.issue()
    left.log.append("ending", "left", 1.0, "", "", [("train.py", 12, "sys.exit(0)", "main")], 0, "")
    assert verdict(tmp_path) == "", "it may still call something at exit"
    left.end()
    assert verdict(tmp_path).startswith("RankDied: rank 1 left early: it called sys.exit(0).")
