"""The training scripts outside of a notebook: the one for one device, how they save, and the files
that Slurm and Kubernetes take. Lesson 06 starts ddp.py by torchrun."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import pytest
import torch
import yaml
from processes import gone
from torch.distributed.run import get_args_parser

from course_lib import run

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "course_tools" / "jobs"
SBATCH = (JOBS / "train.sbatch").read_text()
SERVICE, JOB = yaml.safe_load_all((JOBS / "train.yaml").read_text())
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": str(ROOT),
}


def play(script: str, folder: Path, *words: str) -> None:
    """Play a script of the library in a folder, in this process."""
    os.chdir(folder)
    sys.path.insert(0, str(JOBS))
    sys.argv = [script, *words]
    runpy.run_path(str(JOBS / script), run_name="__main__")


@pytest.mark.slow
def test_the_script_for_one_device_trains(tmp_path: Path, monkeypatch, capsys):
    """Lesson 06 shows how ddp.py differs from it, and runs ddp.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    play("single.py", tmp_path)
    accuracies = re.findall(r"test accuracy (\d\.\d+)", capsys.readouterr().out)
    assert float(accuracies[-1]) >= 0.95
    assert (tmp_path / "digits.pt").exists()


def threads_of_gloo() -> list[str]:
    names = {f.read_text().strip() for f in Path("/proc/self/task").glob("*/comm")}
    return sorted(name for name in names if "gloo" in name)


def whole_and_in_parts(folder: Path) -> tuple[str, list[str], list[str]]:
    """How a job ends whose ranks do not see one disk; gloo's threads in the last step of one that
    trains, and when all is done.
    """
    own, during = folder / os.environ["RANK"], list[str]()
    own.mkdir()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        play("train.py", own, "--epochs=1")
    except SystemExit as end:
        code = str(end.code)

    def look(*args, step=torch.optim.Adam.step):
        during[:] = threads_of_gloo()
        return step(*args)

    torch.optim.Adam.step = look  # type: ignore[method-assign]
    for name, epochs in (("whole", 2), ("ended", 1), ("ended", 2)):
        play("train.py", folder, f"--epochs={epochs}", f"--checkpoint={name}.pt")
    return code, during, threads_of_gloo()


@pytest.mark.slow
def test_a_job_that_goes_on_is_bit_equal_to_one_that_was_not_ended(tmp_path: Path):
    """On three ranks: sums of two numbers are the same in any order. No thread of gloo outlives the
    group: one that still runs while Python ends can abort the process. And two machines without a
    common disk are refused before they train.
    """
    done = run(whole_and_in_parts, tmp_path, world_size=3, init=False, record=False)
    (refused, during, after), *_ = done.results
    whole, ended = (torch.load(tmp_path / f"{name}.pt") for name in ("whole", "ended"))
    assert whole["losses"] == ended["losses"] and len(whole["losses"]) == 2
    assert [k for k, t in whole["model"].items() if not torch.equal(t, ended["model"][k])] == []
    assert len([*tmp_path.iterdir()]) == 2 + 3, "a file is left behind"
    assert during, "the test looks for threads by a name that they do not have"
    assert after == []
    assert "--checkpoint a path on a disk that all machines share" in refused
    assert not list(tmp_path.glob("?/*")), "it has trained, or a file is left behind"


def test_a_crash_while_saving_leaves_the_old_file_whole(tmp_path: Path, monkeypatch):
    """The file is replaced in one step: what is there is a whole checkpoint, old or new."""
    monkeypatch.syspath_prepend(JOBS)
    import train

    del sys.modules["train"]  # other scripts have this name, too

    def broken(state: dict, file) -> None:
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "dist", SimpleNamespace(get_rank=lambda: 0, barrier=lambda: None))
    path = tmp_path / "new" / "digits.pt"
    train.save(path, {"epoch": 1})
    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(KeyboardInterrupt):
        train.save(path, {"epoch": 2})
    assert train.load(path, torch.device("cpu")) == {"epoch": 1}


# A rank whose torch is a stand-in. It tells its number when it imports torch, or when it trains.
RANK = """
import os, sys, time
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock
early, jobs = sys.argv[1:]
def tell():
    os.write(1, b"%d\\n" % os.getpid()); sys.stdin.readline()
class Torch:
    def find_spec(self, name, *_):
        if name == "torch" and early == "import torch": tell()
        return ModuleSpec(name, self, is_package=True) if name.startswith("torch") else None
    def create_module(self, spec): return MagicMock(__path__=[])
    def exec_module(self, module): pass
sys.meta_path.insert(0, Torch())
sys.path.insert(0, jobs)
import train
train.end_with_agent()
tell(); time.sleep(60)
"""
AGENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
@pytest.mark.parametrize("when", ["import torch", "train.end_with_agent()"])
def test_no_rank_outlives_its_agent(when: str):
    """The agent is killed while the rank imports torch, or later; a rank that trained on would
    write into its successor's checkpoint.
    """
    command = [sys.executable, "-c", AGENT, RANK, when, str(JOBS)]
    pipe, env = subprocess.PIPE, ENVIRONMENT | {"TORCHELASTIC_RUN_ID": "7"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env) as agent:
        pid = int(agent.stdout.readline())
        agent.kill()
        agent.stdin.close()
    assert gone([pid], 50) == [], "the rank lives on"


# ------------------------------------------------------------------------------- Slurm


def test_slurm_reads_every_directive_and_starts_one_agent_a_node():
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)$", SBATCH, re.M))
    assert asked["ntasks-per-node"] == "1", "the agent starts the ranks"
    assert int(asked["nodes"]) > 1
    assert "requeue" in asked and asked["open-mode"] == "append", "it goes on where it was"
    above, _, below = SBATCH.partition("set -euo")
    assert above.count("\n#SBATCH") == len(asked) and "\n#SBATCH" not in below


def sbatch(folder: Path, commands: dict[str, str], slurm: dict[str, str], *words: str):
    """Play the file with stand-ins for some commands."""
    for name, text in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    env = ENVIRONMENT | slurm | {"SLURM_JOB_ID": "7", "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["bash", JOBS / "train.sbatch", *words]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_slurm_file_starts_torchrun_on_each_node(tmp_path: Path):
    """With stand-ins for three commands. torchrun's says how it was called, then its variables."""
    variables = ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "TORCH_FR_DUMP_TEMP_FILE"]
    commands = {
        "scontrol": '[ "$1 $2" = "show hostnames" ] && echo node1 && echo node2',
        "srun": 'echo "$1"; echo "$2"; shift 2; exec "$@"',
        "torchrun": f'printf "%s\\n" "$@"; printenv {" ".join(variables)}',
    }
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "32"}
    done = sbatch(tmp_path, commands, slurm, "--epochs=1")
    assert done.returncode == 0, done.stderr
    all_or_none, to_srun, *words, own_store, dumps = done.stdout.splitlines()
    assert all_or_none == "--kill-on-bad-exit=1", "or an agent outlives those that have given up"
    assert to_srun == "--cpus-per-task=32", "since Slurm 22.05 it takes over nothing"
    assert own_store == "1", "or ranks that are started again look for dead ones"
    assert Path(dumps).is_absolute() and Path(dumps).parent.is_dir(), "Flight Recorder makes none"
    asked = torchrun(words)
    assert asked.max_restarts > 0
    assert (asked.nnodes, asked.nproc_per_node, asked.rdzv_id) == ("2", "2", "7")
    assert (asked.rdzv_backend, asked.rdzv_endpoint) == ("c10d", "node1:29500")
    assert asked.training_script == "train.py"
    assert asked.training_script_args == ["--checkpoint=digits-7.pt", "--epochs=1"]


def test_before_its_time_is_over_the_slurm_job_is_queued_again(tmp_path: Path):
    """Slurm's signal reaches the script while srun runs."""
    [signal] = re.findall(r"^#SBATCH --signal=B:(\w+)@\d+$", SBATCH, re.M)
    commands = {
        "scontrol": '[ "$1" = show ] && exec echo node1; echo "$@" >> asked; kill "$(cat pid)"',
        "srun": f'echo $$ > pid; kill -{signal} "$PPID"; exec sleep 100',
    }
    slurm = {"SLURM_JOB_NODELIST": "node1", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "32"}
    done = sbatch(tmp_path, commands, slurm)
    assert (tmp_path / "asked").read_text() == "requeue 7\n", done.stderr
    assert done.returncode != 0


def torchrun(words: list[str]) -> argparse.Namespace:
    """What torchrun understands; it ends at an option that it does not know."""
    return get_args_parser().parse_args(words)


# ------------------------------------------------------------------------------- Kubernetes


def test_kubernetes_knows_every_field():
    """By the schema of its API; ``strict`` refuses what the API would not know."""
    for document in (SERVICE, JOB):
        kubernetes_validate.validate(document, "1.37", strict=True)
    misspelt = {**JOB, "spec": {**JOB["spec"], "completionmode": "Indexed"}}
    with pytest.raises(kubernetes_validate.ValidationError, match="completionmode"):
        kubernetes_validate.validate(misspelt, "1.37", strict=True)


def test_the_kubernetes_file_is_a_job_whose_pods_can_find_one_another():
    assert (SERVICE["kind"], SERVICE["apiVersion"]) == ("Service", "v1")
    assert (JOB["kind"], JOB["apiVersion"]) == ("Job", "batch/v1")
    spec, pod = JOB["spec"], JOB["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    assert pod["restartPolicy"] in ("Never", "OnFailure"), "what a Job allows"

    name, service = JOB["metadata"]["name"], SERVICE["metadata"]["name"]
    assert SERVICE["spec"]["clusterIP"] == "None", "YAML's own None would be an address"
    assert SERVICE["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert pod["subdomain"] == service

    (container,) = pod["containers"]
    program, *words = container["command"]
    asked = torchrun(words)
    assert program == "torchrun"
    assert asked.nnodes == str(spec["completions"])
    assert asked.rdzv_endpoint.startswith(f"{name}-0.{service}:")
    assert asked.nproc_per_node == str(container["resources"]["limits"]["nvidia.com/gpu"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert asked.max_restarts > 0
    assert variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert variables["TORCH_FR_DUMP_TEMP_FILE"].startswith(mounts["checkpoints"])
    [checkpoint] = asked.training_script_args
    assert checkpoint.startswith(f"--checkpoint={mounts['checkpoints']}")
