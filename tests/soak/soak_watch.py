"""Forty jobs of torchrun under watch, each killed in another place: nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
KILLS = 40
STANDS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("ready", flush=True)
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.01)
"""


def family(agent: psutil.Process) -> dict[str, list[psutil.Process]]:
    """What torchrun has started: the parents of ranks, the first of which reads, and the ranks."""
    parents = sorted(agent.children(), key=lambda p: p.pid)
    ranks = [child for parent in parents for child in parent.children()]
    return {"agent": [agent], "reader": parents[:1], "parent": parents[1:], "rank": ranks[-1:]}


@pytest.mark.parametrize("number", range(KILLS))
def test_nothing_is_left_of_a_job_that_is_killed(tmp_path: Path, number: int):
    script = tmp_path / "train.py"
    script.write_text(STANDS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    job = subprocess.Popen(
        [*command, "-m", "course_lib.watch", str(script)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert job.stdout is not None
    assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    time.sleep(0.05 * (number % 7))
    processes = family(psutil.Process(job.pid))
    everybody = [process for some in processes.values() for process in some]
    everybody += [child for parent in processes["parent"] for child in parent.children()]
    everybody += [child for reader in processes["reader"] for child in reader.children()]
    who = ("rank", "reader", "parent", "agent")[number % 4]
    how = (signal.SIGKILL, signal.SIGINT)[number // 4 % 2] if who == "agent" else signal.SIGKILL
    processes[who][0].send_signal(how)
    if who == "agent" and how == signal.SIGKILL:  # its ranks go on, as they do without watch
        for rank in [child for parent in processes["reader"] for child in parent.children()]:
            rank.kill()
    _, alive = psutil.wait_procs(everybody, 40)
    for process in alive:
        process.kill()
    assert alive == []
    if how == signal.SIGINT:  # an interrupted job that was right leaves no logs
        assert [path.name for path in tmp_path.glob("course_lib-watch-*")] == []
