"""Slurm itself starts the training script on two nodes, where there is a Slurm."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_jobs import ENVIRONMENT, JOBS, SBATCH, accuracies
from watched_jobs import free_port


class Slurm:
    """Slurm itself, with two nodes on this machine, each with eight files in place of GPUs.

    Its daemons are children of this process, with ports and a folder of their own.
    """

    @staticmethod
    def missing() -> list[str]:
        parts = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
        return [name for name in parts if not shutil.which(name)]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = ENVIRONMENT | {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen] = []

    def __enter__(self) -> Slurm:
        here, user, ports = self.folder, getpass.getuser(), [free_port() for _ in range(3)]
        for name in ("state", "spool-n0", "spool-n1"):
            (here / name).mkdir()
        for number in range(8):
            (here / f"gpu{number}").touch()
        (here / "gres.conf").write_text(f"Name=gpu File={here}/gpu[0-7]\n")
        (here / "slurm.conf").write_text(f"""\
ClusterName=course
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={here}/munge
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool-%n
SlurmctldPidFile={here}/slurmctld.pid
SlurmdPidFile={here}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=DEFAULT CPUs=32 Gres=gpu:8
NodeName=n0 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]}
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]}
PartitionName=all Nodes=n[0-1] Default=YES
""")
        key = here / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        own = [
            f"--{name}={here}/munge.{name[:3]}" for name in ("pid-file", "log-file", "seed-file")
        ]
        try:
            self._start(
                "munged",
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={here}/munge",
                *own,
            )
            self._start("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
            for node in ("n0", "n1"):
                self._start("slurmd", "-D", "-f", self.environment["SLURM_CONF"], "-N", node)
            while all(daemon.poll() is None for daemon in self._daemons):
                if self.command("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "2":
                    return self
                time.sleep(0.1)  # nothing tells when both nodes are there
            raise RuntimeError("".join(path.read_text() for path in here.glob("*.out")))
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, *words: str) -> None:
        with (self.folder / f"{words[0]}.out").open("a") as out:
            self._daemons.append(
                subprocess.Popen(
                    words,
                    cwd=self.folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )
            )

    def state_of_jobs(self) -> set[str]:
        return set(re.findall(r"JobState=(\w+)", self.command("scontrol", "show", "job").stdout))

    def command(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment | more,
            text=True,
            capture_output=True,
            timeout=120,
        )


def test_slurm_starts_the_job_on_two_nodes(tmp_path: Path):
    if missing := Slurm.missing():
        pytest.skip(f"no Slurm here: {', '.join(missing)} missing")
    (tmp_path / "torchrun").write_text(
        "#!/bin/sh\n# Both nodes are this machine, whose names stand in no list of hosts.\n"
        'for word; do shift; set -- "$@" "$(echo "$word" | sed s/=n0:/=127.0.0.1:/)"; done\n'
        f'exec {sys.executable} -m torch.distributed.run --local-addr=127.0.0.1 "$@"\n'
    )
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "train.sbatch").write_text(SBATCH.replace(":29500", f":{free_port()}"))
    shutil.copy(JOBS / "train.py", tmp_path)
    with Slurm(tmp_path) as slurm:
        planned = slurm.command("sbatch", "--test-only", "train.sbatch")
        assert "on nodes n[0-1]" in planned.stderr, planned
        taken = slurm.command(
            "sbatch",
            "--gpus-per-node=1",
            "train.sbatch",
            "--epochs=1",
            PATH=f"{tmp_path}:{os.environ['PATH']}",
        )
        assert taken.returncode == 0, taken
        while (state := slurm.state_of_jobs()) <= {"PENDING", "RUNNING", "COMPLETING"}:
            time.sleep(0.2)  # sbatch --wait asks only every half minute
    assert state == {"COMPLETED"}, [p.read_text() for p in tmp_path.glob("digits*.log")]
    (log,) = tmp_path.glob("digits-*.log")
    assert "2 ranks, gloo, rank 0 on cpu" in log.read_text()
    trained, loaded = accuracies(log.read_text())
    assert trained == loaded
    assert (tmp_path / f"{log.stem}.pt").exists()
