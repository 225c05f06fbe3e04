"""Jobs under watch: right ones come through as they are, and of broken ones the cause is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import gone
from watched_jobs import ROOT, start

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


def test_a_script_does_what_it_does_without(tmp_path: Path):
    """Python itself would print these lines, and nothing else."""
    (tmp_path / "neighbour.py").write_text("word = 'hello'\n")
    done = start(tmp_path, RIGHT, "--lr", "0.5").finish()
    first = f"args 0.5 train.py {tmp_path}/train.py None\nsum 2.0 hello\n"
    last = "[16]\nat exit\n"
    assert done.ends == [(f"{first}[9]\n{last}", ""), (first + last, "")]
    assert done.codes == [0, 3]


def test_a_call_that_only_one_rank_makes_is_told_while_the_job_stands(tmp_path: Path):
    source = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(4)
        dist.all_reduce(x)
        if dist.get_rank() == 0:
            dist.barrier()
        dist.all_reduce(x)
    """
    job = start(tmp_path, source, options=["--json"])
    try:
        told = json.loads(job.ranks[0].stderr.readline())
        assert told["kind"] == "Mismatch"
        assert told["ranks"] == [0, 1]
        assert told["lines"][0].startswith("train.py, line 7:  dist.barrier()")
        assert told["lines"][1].startswith("train.py, line 8:  dist.all_reduce(x)")
        assert told["restart"] == 0
        assert [rank.poll() for rank in job.ranks] == [None, None]
    finally:
        job.kill()


def test_groups_of_some_ranks_come_through_in_silence_and_logs_can_be_read(tmp_path: Path, capsys):
    """One of the right jobs that the soak starts by torchrun."""
    job = ROOT / "tests" / "soak" / "jobs" / "subgroups.py"
    done = start(tmp_path, job.read_text(), size=3).finish()
    assert done.ends == [(f"rank {n} [1.0, 1.0]\n", "") for n in range(3)]
    assert main(["--read", str(tmp_path / "logs")]) == 0
    said = capsys.readouterr().out
    assert said == "16 calls of 3 ranks, and nothing wrong is found in them.\n"


BROKEN = {
    "killed": (
        "os.kill(os.getpid(), signal.SIGKILL)",
        -9,
        "RankDied: rank 1 was killed by SIGKILL (signal 9)",
        "all_reduce(SUM)",
    ),
    "leaves": (
        "sys.exit(4)",
        4,
        "RankDied: rank 1 left early: it called sys.exit(4)",
        "A rank must not end before the others have what they need from it.",
    ),
    "returns": (
        "os._exit(0)",
        0,
        "Deadlock: rank 0 waits for rank 1, which has already returned.",
        "all_reduce(SUM)",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_the_cause_is_told_and_not_the_victim(tmp_path: Path, kind: str):
    does, code, says, line = BROKEN[kind]
    source = f"""
        import os, signal, sys, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(4)
        dist.all_reduce(x)
        if dist.get_rank() == 1:
            {does}
        dist.all_reduce(x)
    """
    done = start(tmp_path, source).finish()
    assert done.codes == [1, code]
    assert done.said.count("course_lib.watch: ") == 1
    assert done.said.startswith(f"course_lib.watch: {says}")
    assert line in done.said


def test_a_deadlock_is_ended_on_demand(tmp_path: Path):
    source = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.recv(torch.ones(4), 1 - dist.get_rank())
    """
    job = start(tmp_path, source, options=["--end"]).finish()
    assert job.codes[0] == -signal.SIGTERM
    assert "Deadlock: every rank waits for another." in job.said


def test_who_waits_for_the_group_to_form_is_told_once_and_later_waits_too(tmp_path: Path):
    source = """
        import os, time, torch, torch.distributed as dist
        def load():
            while not os.path.exists("loaded"):
                time.sleep(0.1)
        if os.environ["RANK"] == "1":
            load()
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 0:
            time.sleep(100)
        dist.barrier()
    """
    job = start(tmp_path, source, env={"COURSE_LIB_QUIET": "1"})
    try:
        first = [job.ranks[0].stderr.readline() for _ in range(5)]
        assert first[1] == "course_lib.watch: Waiting: nothing was called for 1 s.\n"
        assert first[2].startswith("  rank 0 waits in init_process_group   train.py, line 8:")
        assert first[3].startswith("  rank 1 is at   train.py, line 5:  time.sleep(0.1)")
        (tmp_path / "loaded").touch()
        later = [job.ranks[0].stderr.readline() for _ in range(5)]
        assert later[2].startswith("  rank 0 is at   train.py, line 11:  time.sleep(100)")
        assert later[3].startswith("  rank 1 waits in barrier()   train.py, line 12:")
    finally:
        job.kill()


def test_two_machines_without_a_common_folder_are_read_together_afterwards(tmp_path: Path, capsys):
    source = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(4)
        dist.all_reduce(x)
        op = dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM
        dist.all_reduce(x, op)
    """
    done = start(tmp_path, source, machines=True, apart=True).finish()
    assert done.codes == [0, 0]
    assert done.ends == [("", "")] * 2, "neither has both logs"
    both = [str(tmp_path / f"logs-{rank}") for rank in range(2)]
    assert main(["--read", *both]) == 1
    told = capsys.readouterr().out
    assert "do not agree on the reduce op: SUM and MAX" in told
    assert told.count("train.py, line 7:") == 2
    assert main(["--read", both[0]]) == 0


SLEEPS = """
    import os, time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    print(os.getpid(), flush=True)
    time.sleep(100)  # nobody waits for another one, who would miss it a moment before it is ended
"""


def test_a_signal_to_what_torchrun_started_ends_the_rank(tmp_path: Path):
    job, numbers = start(tmp_path, SLEEPS, size=3), (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)
    try:
        pids = [int(rank.stdout.readline()) for rank in job.ranks]
        for rank, number in zip(job.ranks, numbers, strict=True):
            os.kill(rank.pid, number)
        assert gone(pids, 60) == []
        assert [rank.wait(20) for rank in job.ranks] == [-number for number in numbers]
        for rank, number in zip(job.ranks, numbers, strict=True):
            if number != signal.SIGINT:  # of which Python itself prints a traceback
                assert rank.stderr.read() == ""
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
    script = (
        "import faulthandler, os, pathlib, sys\n"
        "from course_tools.watch.watched_rank import ASK, _write_stack_on_signals\n"
        "_write_stack_on_signals(pathlib.Path(sys.argv[1]))\n"
        "faulthandler.unregister(ASK)\n"
        "os.kill(os.getpid(), ASK)\n"
        "print('lives')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "stack")]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert done.stdout == "lives\n", done
