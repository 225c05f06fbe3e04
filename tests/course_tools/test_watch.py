"""Jobs under watch: right ones come through as they are, and of broken ones the cause is told."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from processes import gone
from watched_jobs import ROOT, start

from course_lib import run
from course_tools.watch import watched_rank
from course_tools.watch.watch_command import main

pytestmark = pytest.mark.slow

RIGHT = """
    import argparse, atexit, multiprocessing, os, pickle, sys
    import torch, torch.distributed as dist
    import neighbour

    class Point:
        pass

    def square(x):
        return x * x

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        print("args", parser.parse_args().lr, os.path.basename(sys.argv[0]), __file__, __spec__)
        assert type(pickle.loads(pickle.dumps(Point()))) is Point
        dist.init_process_group("gloo")
        x = torch.ones(1)
        dist.all_reduce(x)
        print("sum", x.item(), neighbour.word)
        if dist.get_rank() == 0:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(square, [3]))
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(pool.map(square, [4]))
        atexit.register(print, "at exit")
        return 3 * dist.get_rank()

    if __name__ == "__main__":
        sys.exit(main())
"""


def test_a_script_does_what_it_does_without(tmp_path: Path, capsys):
    """Python itself would print these lines, and nothing else. The logs can be read afterwards."""
    (tmp_path / "neighbour.py").write_text("word = 'hello'\n")
    done = start(tmp_path, RIGHT, "--lr", "0.5").finish()
    first = f"args 0.5 train.py {tmp_path}/train.py None\nsum 2.0 hello\n"
    last = "[16]\nat exit\n"
    assert done.ends == [(f"{first}[9]\n{last}", ""), (first + last, "")]
    assert done.codes == [0, 3]
    assert main(["--read", str(tmp_path / "logs")]) == 0
    said = capsys.readouterr().out
    assert said == "2 calls of 2 ranks, and nothing wrong is found in them.\n"


def test_what_a_job_comes_through_is_told_while_it_stands_and_ends_it_not(tmp_path: Path):
    source = """
        import os, time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.all_gather([torch.empty(4)] * 2, torch.ones(4))
        while not os.path.exists("told"):
            time.sleep(0.01)
    """
    job = start(tmp_path, source, options=["--json", "--end"])
    try:
        told = json.loads(job.ranks[0].stderr.readline())
        assert (told["kind"], told["ranks"], told["restart"]) == ("Mismatch", [0], 0)
        assert "lets all_gather fill one tensor 2 times" in told["text"]
        assert told["lines"][0].startswith("train.py, line 4:  dist.all_gather(")
        (tmp_path / "told").touch()
        assert job.finish().codes == [0, 0]
    finally:
        job.kill()


def test_the_cause_is_told_and_not_the_victim(tmp_path: Path):
    """Others: test_logs."""
    source = """
        import os, signal, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(4)
        dist.all_reduce(x)
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(x)
    """
    done = start(tmp_path, source).finish()
    assert done.codes == [1, -9]
    says = "course_lib.watch: RankDied: rank 1 was killed by SIGKILL (signal 9)"
    assert done.said.count("course_lib.watch: ") == 1
    assert done.said.startswith(says) and "all_reduce(SUM)" in done.said


def test_a_deadlock_is_ended_on_demand(tmp_path: Path):
    source = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.recv(torch.ones(4), 1 - dist.get_rank())
    """
    job = start(tmp_path, source, options=["--end"]).finish()
    assert job.codes[0] == -signal.SIGTERM
    assert "Deadlock: every rank waits for another." in job.said


def test_who_waits_is_told_once_while_the_group_forms_and_once_later(tmp_path: Path):
    """A signal to what torchrun started ends the rank."""
    source = """
        import os, time, torch, torch.distributed as dist
        open("loading", os.environ["RANK"] == "1" and "w" or "r").close()
        if os.environ["RANK"] == "1":
            open("loaded").close()
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 0:
            time.sleep(100)
        dist.barrier()
    """
    for name in ("loading", "loaded"):  # opening a pipe waits until its other end is opened
        os.mkfifo(tmp_path / name)
    job = start(tmp_path, source, env={"COURSE_LIB_QUIET": "1"})
    try:
        first = [job.ranks[0].stderr.readline() for _ in range(5)]
        assert first[1] == "course_lib.watch: Waiting: nothing was called for 1 s.\n"
        assert first[2].startswith("  rank 0 waits in init_process_group   train.py, line 6:")
        assert first[3].startswith("  rank 1 is at   train.py, line 5:  open(")
        (tmp_path / "loaded").open("w").close()
        later = [job.ranks[0].stderr.readline() for _ in range(5)]
        assert later[2].startswith("  rank 0 is at   train.py, line 9:  time.sleep(100)")
        assert later[3].startswith("  rank 1 waits in barrier()   train.py, line 10:")
        pids = [psutil.Process(rank.pid).children()[0].pid for rank in job.ranks]
        numbers = signal.SIGKILL, signal.SIGTERM
        for rank, number in zip(job.ranks, numbers, strict=True):
            os.kill(rank.pid, number)
        assert gone(pids, 60) == []
        assert [rank.wait(20) for rank in job.ranks] == [-number for number in numbers]
        assert job.ranks[1].stderr.read() == ""
    finally:
        job.kill()


def test_torchrun_tells_the_cause_before_its_prompt_is_back(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "if dist.get_rank() == 1:\n"
        "    {}['lr']\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "course_lib.watch", "--keep", tmp_path / "l", script]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 1
    told = "course_lib.watch: RankFailed: rank 1 raised KeyError: 'lr'\n  train.py, line 5:"
    assert done.stderr.count(told) == 1
    assert "watch/script.py" not in done.stderr


def test_a_rank_that_is_asked_when_it_can_answer_no_more_lives(tmp_path: Path):
    """Python lets faulthandler go some time before the process ends; children of a rank, too."""

    def cannot_answer() -> str:
        watched_rank._write_stack_on_signals(tmp_path / "stack")
        faulthandler.unregister(watched_rank.ASK)
        os.kill(os.getpid(), watched_rank.ASK)
        return "lives"

    assert run(cannot_answer, world_size=1).results == ["lives"]
