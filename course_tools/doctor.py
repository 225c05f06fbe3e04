"""python -m course_lib doctor: what this machine can run, and how to mend what is missing.

Each question tries something for real. It returns what it found in a few words, or raises an
exception, which is then the problem. Only the questions in NEEDED count for the exit code: without
the others a lesson shows less, but runs. A question imports what it needs by itself, so the doctor
still has something to say when torch cannot be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import course_lib
from course_lib.versions import OLDEST_PYTHON, UPGRADE, old_torch, other_python

GIB = 1 << 30
CGROUP = Path("/sys/fs/cgroup")
# What a container may use, and what it uses: in version 2 of cgroups, and in version 1.
LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
# This is compiled as a learner's cell is, so it travels to the ranks as a cell's functions do. The
# Hazard in its last line has to be told.
MISTAKE = """\
import torch
import torch.distributed as dist

def forgets_to_wait():
    dist.all_reduce(torch.ones(1), async_op=True)
"""
PLACES = {  # by an environment variable that tells each place: its limits
    "COLAB_RELEASE_TAG": "Colab: one GPU, so one rank with NCCL; files go with the session",
    "KAGGLE_KERNEL_RUN_TYPE": "Kaggle: two GPUs; nothing can be installed with Internet off",
    "CODESPACES": "Codespaces: no GPU, and it stops when it is idle",
    "JUPYTERHUB_USER": "a JupyterHub: what its owner gives you, so look at memory below",
}


class Question(NamedTuple):
    """What to try, and the advice if that fails."""

    name: str
    ask: Callable[[], str]
    remedy: str


class Remark(NamedTuple):
    """The answer to a question: ``state`` is "ok", "note" or "MISSING"."""

    state: str
    text: str
    remedy: str = ""


class Problem(Exception):
    """Something was found, and it is not enough."""


def main(_args: object = None, questions: Sequence[Question] | None = None) -> int:
    """Ask all questions and print each answer at once; return 1 if something NEEDED is missing."""
    with contextlib.suppress(AttributeError):  # for terminals that cannot show every character
        sys.stdout.reconfigure(errors="replace", line_buffering=True)  # type: ignore[union-attr]
    states: dict[str, str] = {}
    for question in QUESTIONS if questions is None else questions:
        found = examine(question, states)
        states[question.name] = found.state
        print(f"{found.state:<8}{question.name:<12}{found.text}")
        if found.remedy:
            print(f"{'':20}{found.remedy}")
    print(f"\n{say_modes(states)}")
    return int("MISSING" in states.values())


def say_modes(states: dict[str, str]) -> str:
    """Say how lessons will run here; ``states`` has each question's state by its name."""
    if missing := [name for name, state in states.items() if state == "MISSING"]:
        return f"No lesson runs as it should before this is mended: {', '.join(missing)}."
    simulated = "on simulated ranks"
    if states.get("simulate") != "ok":
        simulated = "but cells with simulate() end in an error, and checks use real ranks alone"
    page = "" if states.get("JupyterLab") == "ok" else " Open them in VS Code, Colab or the like."
    gpus = ', on the GPUs wherever you write backend="nccl"' if states.get("NCCL") == "ok" else ""
    return f"Every lesson runs here: on real ranks with gloo, {simulated}{gpus}.{page}"


def examine(question: Question, states: dict[str, str]) -> Remark:
    """Ask one question. Whatever it raises becomes the answer; what ranks print is dropped."""
    failed = "MISSING" if question.name in NEEDED else "note"
    for first, later in AFTER.items():
        if question.name in later and states.get(first, "ok") != "ok":
            return Remark(failed, "not tried", f"mend {first} first")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return Remark("ok", question.ask())
    except Exception as error:
        elsewhere = other_python() if isinstance(error, ImportError) else ""
        return Remark(failed, _take_first_line(error), elsewhere or question.remedy)


def _take_first_line(error: Exception) -> str:
    # C++ begins with the place in its own sources: "[enforce fail at /…/device.cc:84] ifa …".
    text = re.sub(r"\[enforce fail at [^\]]*\] ", "", str(error)).strip()
    kind = "" if isinstance(error, Problem) else type(error).__name__
    return ": ".join(filter(None, (kind, text.partition("\n")[0])))


def check_python() -> str:
    if sys.version_info < OLDEST_PYTHON:
        raise Problem(f"{sys.version.split()[0]} is too old")
    here = [f", in {text}" for variable, text in PLACES.items() if variable in os.environ]
    return f"{sys.version.split()[0]} in {sys.prefix}{here[0] if here else ''}"


def check_torch() -> str:
    import torch

    if old_torch(torch.__version__):
        raise Problem(f"{torch.__version__} is too old")
    if not torch.distributed.is_available():
        raise Problem(f"{torch.__version__} was built without torch.distributed")
    return torch.__version__


def check_packages() -> str:
    found = map(importlib.import_module, ("torchvision", "numpy", "matplotlib", "cloudpickle"))
    return ", ".join(f"{module.__name__} {module.__version__}" for module in found)


def check_jupyterlab() -> str:
    return ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("jupyterlab", "ipykernel"))


def add_up() -> float:
    """Add up all ranks' numbers, counted from 1. Every rank calls this."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():  # as a script under torchrun has to
        dist.init_process_group("gloo")
    x = torch.tensor([dist.get_rank() + 1.0], device=course_lib.device())
    dist.all_reduce(x)
    return x.item()


def _check_sum(done) -> None:
    n = done.world_size
    if done.results != [n * (n + 1) / 2] * n:
        raise Problem(f"the all_reduce over {n} ranks came back wrong: {done.results}")


def check_gloo() -> str:
    done = course_lib.run(add_up, world_size=2)
    _check_sum(done)
    if (ops := [event.op for event in done.trace.events]) != ["all_reduce"] * 2:
        raise Problem(f"two ranks made one all_reduce each, and the trace shows {ops}")
    start = time.perf_counter()
    _check_sum(course_lib.run(add_up, world_size=2, init=False))
    if (seconds := time.perf_counter() - start) > 5:  # a name server that does not answer
        raise Problem(f"2 ranks took {seconds:.0f} s to find one another as under torchrun")
    return f"2 ranks found one another and did an all_reduce, recorded, in {seconds:.1f} s"


def check_diagnosis() -> str:
    return _provoke_diagnosis(course_lib.run)


def check_simulate() -> str:
    _check_sum(course_lib.simulate(add_up, world_size=8))
    return f"8 simulated ranks did an all_reduce, and {_provoke_diagnosis(course_lib.simulate)}"


def _provoke_diagnosis(engine: Callable) -> str:
    """Make a mistake on purpose: if diagnosis were broken, every program would look right."""
    from course_lib.user_code import show_lines

    file, space = "<doctor>", {"__name__": "__main__"}
    show_lines(file, MISTAKE)
    exec(compile(MISTAKE, file, "exec"), space)
    try:
        engine(space["forgets_to_wait"], world_size=2)
    except course_lib.Hazard as error:
        if f"{file}, line 5:  dist.all_reduce(torch.ones(1), async_op=True)" in str(error):
            return "a mistake was told with its line"
        raise Problem("a mistake was made, and told without its line") from None
    raise Problem("a mistake was made, and nobody told it")


def check_nccl() -> str:
    import torch
    import torch.distributed as dist

    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    if not gpus:
        raise Problem("no GPU is visible, and no lesson needs one")
    if not dist.is_nccl_available():
        raise Problem("this torch was built without NCCL")
    _check_sum(
        course_lib.run(add_up, backend="nccl", timeout=120)
    )  # the first time on a cold machine
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return f"{version}, an all_reduce over {len(gpus)} × {', '.join(sorted(set(gpus)))}"


def check_memory() -> str:
    _require_room_for_a_file(tempfile.gettempdir())
    if Path("/dev/shm").is_dir():
        _require_room_for_a_file("/dev/shm")
        if (shared := shutil.disk_usage("/dev/shm").free) < GIB // 4:
            raise Problem(f"/dev/shm has {shared >> 20} MiB, too little for a DataLoader's workers")
    free = []
    with contextlib.suppress(OSError, LookupError):
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free.append(int(fields["MemAvailable"].split()[0]) << 10)
    for names in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no container, or none with a limit
            limit, used = (int((CGROUP / name).read_text()) for name in names)
            free.append(limit - used)
    if not free:
        return "this system does not say how much is free"
    if min(free) < 2 * GIB:
        raise Problem(f"{min(free) / GIB:.1f} GiB free, and 2 are wanted")
    return f"{min(free) / GIB:.1f} GiB free"


def _require_room_for_a_file(folder: str) -> None:
    """Try it for real: ranks write their logs there, and hand over tensors."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 16 << 20)
    except OSError as error:
        raise Problem(f"{folder} takes no file of 16 MiB: {error.strerror}") from None


PINNED = "install the versions that requirements.txt names"
QUESTIONS = (
    Question("Python", check_python, "install Python 3.11 or later, and everything else for it"),
    Question("torch", check_torch, UPGRADE),
    Question(
        "packages", check_packages, "pip install --upgrade torchvision matplotlib numpy cloudpickle"
    ),
    Question(
        "JupyterLab",
        check_jupyterlab,
        "pip install 'jupyterlab>=4' 'nbval>=0.11', where nothing else opens notebooks",
    ),
    Question(
        "memory",
        check_memory,
        "run fewer ranks; set TMPDIR to a folder with room; give the container --shm-size=1g",
    ),
    Question("gloo", check_gloo, "unset GLOO_SOCKET_IFNAME; see that /etc/hosts has 127.0.0.1"),
    Question("mistakes", check_diagnosis, PINNED),
    Question("simulate", check_simulate, PINNED),
    Question("NCCL", check_nccl, "on a machine with NVIDIA GPUs: see that nvidia-smi lists them"),
)
NEEDED = ("Python", "torch", "packages", "gloo", "mistakes")
AFTER = {"torch": ("packages", "gloo", "simulate", "NCCL"), "gloo": ("mistakes",)}
