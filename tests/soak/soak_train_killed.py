"""The training script is killed again and again at random moments: a rank, an agent of torchrun, in
the middle of a save, at an epoch's end, on one node and on two. Whoever started it starts it again.
Its losses and its weights are those of a job that nobody touched, bit for bit, and nothing is left.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import torch
from processes import gone, marked, wait_for
from soak_ranks_common import count, report
from test_jobs import ENVIRONMENT, JOBS
from watched_jobs import free_port

EPOCHS = 6
MOMENTS = ("any", "save", "epoch's end")
VICTIMS = ("a rank", "an agent")
MARK = "COURSE_LIB_SOAK_TRAIN"
PATIENCE = 300  # seconds for one start of the job, on a busy machine


@dataclass
class Job:
    """Agents of torchrun, with ranks each, that share a folder."""

    folder: Path
    nodes: int
    ranks: int  # of each node
    agents: list[subprocess.Popen] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "digits.pt"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def start(self) -> None:
        meet = ["--standalone"]
        if self.nodes > 1:
            meet = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
            meet += ["--local-addr=127.0.0.1", "--rdzv-id=7", f"--nnodes={self.nodes}"]
        words = [*meet, f"--nproc-per-node={self.ranks}", "--max-restarts=3"]
        words += [str(JOBS / "train.py"), f"--epochs={EPOCHS}", f"--checkpoint={self.checkpoint}"]
        variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", MARK: str(self.folder)}
        with self.log.open("a") as log:
            self.agents = [
                subprocess.Popen(
                    [sys.executable, "-m", "torch.distributed.run", *words],
                    env=ENVIRONMENT | variables,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                )
                for _ in range(self.nodes)
            ]

    def ended(self) -> bool:
        return all(agent.poll() is not None for agent in self.agents)

    def failed(self) -> bool:
        return any(agent.poll() for agent in self.agents)

    def stop(self) -> None:
        """As srun does where one of them has ended badly (--kill-on-bad-exit)."""
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            try:
                agent.wait(timeout=60)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()

    def pids(self) -> list[int]:
        """Of the ranks."""
        found = []
        for agent in self.agents:
            if agent.poll() is None:
                found += [child.pid for child in psutil.Process(agent.pid).children()]
        return found

    def epochs(self) -> int:
        text = self.log.read_text() if self.log.exists() else ""
        return len(re.findall(r"^epoch \d+ ", text, re.M))

    def run_out(self) -> None:
        """Until it has come to its end; where an agent fails, all are started again."""
        end = time.monotonic() + PATIENCE
        while not self.ended() or self.failed():
            if self.failed():
                self.stop()
                self.start()
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.05)  # nothing tells when one of several has ended


def moment(job: Job, when: str, rng: random.Random) -> None:
    """Wait for it."""
    seen = job.epochs()
    over: Callable[[], bool] = lambda: job.ended() or job.failed()  # noqa: E731
    if when == "any":
        wait_for(lambda: job.pids() or over(), PATIENCE)
        time.sleep(rng.uniform(0, 8))  # at random is what is asked
    elif when == "save":
        unfinished = job.checkpoint.with_name("digits.pt.unfinished")
        wait_for(lambda: unfinished.exists() or over(), PATIENCE)
    else:
        wait_for(lambda: job.epochs() > seen or over(), PATIENCE)


def kill(job: Job, victim: str, rng: random.Random) -> bool:
    """Whether there was somebody to kill."""
    there = [agent.pid for agent in job.agents if agent.poll() is None]
    pids = there if victim == "an agent" else job.pids()
    if pids:
        os.kill(rng.choice(pids), signal.SIGKILL)
    return bool(pids)


def differences(checkpoint: Path, whole: Path) -> list[str]:
    one, other = (torch.load(path, weights_only=True) for path in (checkpoint, whole))
    names = [k for k, t in other["model"].items() if not torch.equal(t, one["model"][k])]
    return names + ["losses"] * (one["losses"] != other["losses"])


def left_behind(job: Job) -> list[str]:
    files = [p.name for p in job.folder.iterdir() if p != job.checkpoint]
    return files + [f"process {pid}" for pid in gone(marked(MARK, job.folder), 10)]


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 3), (2, 2)])
def test_training_comes_through_deaths_bit_for_bit(nodes: int, ranks: int, tmp_path: Path) -> None:
    rng, kills, jobs = random.Random(nodes), Counter[str](), 0
    whole = Job(tmp_path / "whole", nodes, ranks)
    whole.folder.mkdir()
    whole.start()
    whole.run_out()
    began = time.monotonic()
    while kills.total() < count(200) // 2:
        job = Job(tmp_path / f"job{jobs}", nodes, ranks)
        job.folder.mkdir()
        job.start()
        try:
            for _ in range(rng.randrange(1, 4)):
                when, victim = rng.choice(MOMENTS), rng.choice(VICTIMS)
                moment(job, when, rng)
                if job.failed():
                    job.stop()
                    job.start()
                elif kill(job, victim, rng):
                    kills[f"{victim}, {when}"] += 1
            job.run_out()
        finally:
            job.stop()
        jobs += 1
        assert differences(job.checkpoint, whole.checkpoint) == [], job.log.read_text()[-3000:]
        assert left_behind(job) == []
        shutil.rmtree(job.folder)
    report(
        f"train-killed-{nodes}x{ranks}",
        kills=dict(kills),
        total=kills.total(),
        jobs=jobs,
        bit_equal=jobs,
        seconds=round(time.monotonic() - began),
    )


def test_the_judge_sees_another_curve_and_what_is_left(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", 1, 1)
    job.folder.mkdir()
    state = {"model": {"w": torch.ones(2)}, "losses": [1.0]}
    torch.save(state, job.checkpoint)
    torch.save(state | {"losses": [1.0 + 1e-16, 2.0]}, tmp_path / "curve.pt")
    torch.save(state | {"model": {"w": torch.ones(2) + 1e-7}}, tmp_path / "weights.pt")
    assert differences(job.checkpoint, job.checkpoint) == []
    assert differences(job.checkpoint, tmp_path / "curve.pt") == ["losses"]
    assert differences(job.checkpoint, tmp_path / "weights.pt") == ["w"]
    sleeper = subprocess.Popen(["sleep", "60"], env=os.environ | {MARK: str(job.folder)})
    try:
        assert wait_for(lambda: marked(MARK, job.folder)) == [sleeper.pid]
        (job.folder / "digits.pt.unfinished").touch()
        assert left_behind(job) == ["digits.pt.unfinished", f"process {sleeper.pid}"]
    finally:
        sleeper.kill()
        sleeper.wait()
