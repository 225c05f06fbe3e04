"""The doctor: every question can fail, says so in a line, and names its remedy."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import course_lib
from course_lib import CourseError, pickling
from course_tools import doctor
from course_tools.doctor import LIMITS, QUESTIONS, Problem, Question, examine, main

ROOT = Path(__file__).resolve().parents[2]
BY_NAME = {question.name: question for question in QUESTIONS}
NOT_NEEDED = {"JupyterLab", "memory", "simulate", "NCCL"}

Break = Callable[[pytest.MonkeyPatch], None]


def fails(error: BaseException) -> Callable:
    def fail(*_args: object, **_settings: object) -> None:
        raise error

    return fail


def not_importable(name: str) -> Break:
    return lambda patch: patch.setitem(sys.modules, name, None)


def comes_back(results: list[float], ops: tuple[str, ...] = ("all_reduce",) * 2) -> Break:
    """Every run returns these results."""
    trace = SimpleNamespace(events=[SimpleNamespace(op=op) for op in ops])
    done = SimpleNamespace(results=results, world_size=len(results), trace=trace)

    def patch_run(patch: pytest.MonkeyPatch) -> None:
        for name in ("run", "simulate"):
            patch.setattr(course_lib, name, lambda *_args, **_settings: done, raising=False)

    return patch_run


def slow_names(patch: pytest.MonkeyPatch) -> None:
    comes_back([3.0, 3.0])(patch)
    clock = iter((0.0, 12.0))
    patch.setattr(doctor, "time", SimpleNamespace(perf_counter=lambda: next(clock)))


def two_gpus(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dist, "is_nccl_available", lambda: True)
    patch.setattr(torch.cuda, "device_count", lambda: 2)
    patch.setattr(torch.cuda, "get_device_name", lambda _number: "H200")
    patch.setattr(torch.cuda.nccl, "version", lambda: (2, 30, 7))


def gpus_that_do_not_talk(patch: pytest.MonkeyPatch) -> None:
    two_gpus(patch)
    patch.setattr(course_lib, "run", fails(CourseError("no group\nformed")), raising=False)


def small_container(limit: str, used: str) -> Break:
    files = {name: SimpleNamespace(read_text=lambda: "no number") for name in sum(LIMITS, ())}
    files[limit] = SimpleNamespace(read_text=lambda: str(3 << 30))
    files[used] = SimpleNamespace(read_text=lambda: str(2 << 30))
    folder = type("Folder", (), {"__truediv__": lambda _, name: files[name]})()
    return lambda patch: patch.setattr(doctor, "CGROUP", folder)


def nobody_tells(patch: pytest.MonkeyPatch) -> None:
    """Ranks that find nothing wrong."""
    for name in ("run", "simulate"):
        patch.setattr(course_lib, name, lambda *_args, **_settings: None, raising=False)


def names_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """As by cloudpickle 3.1.3, where nobody remembers them for it."""
    patch.setattr(pickling, "_make_code", forget)


def forget(make: Callable, parts: tuple, _file: str, _source: str) -> object:
    return make(*parts).replace(co_filename="<dynamic-code>")


def no_kernel(patch: pytest.MonkeyPatch) -> None:
    absent = importlib.metadata.PackageNotFoundError("ipykernel")
    patch.setattr(importlib.metadata, "version", fails(absent))


def no_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "posix_fallocate", fails(OSError(28, "No space left")))


FREE = SimpleNamespace(free=1 << 20)

# A question, a way to break what it looks at, and words that the finding must hold.
BROKEN: list[tuple[str, Break, str]] = [
    ("Python", lambda p: p.setattr(sys, "version_info", (3, 10, 1)), "too old"),
    ("torch", not_importable("torch"), "torch"),
    ("torch", lambda p: p.setattr(torch, "__version__", "2.9.1+cpu"), "2.9.1+cpu is too old"),
    ("torch", lambda p: p.setattr(dist, "is_available", lambda: False), "without torch.distr"),
    ("packages", not_importable("torchvision"), "torchvision"),
    ("JupyterLab", no_kernel, "ipykernel"),
    ("memory", lambda p: p.setattr(shutil, "disk_usage", lambda _: FREE), "/dev/shm has 1 MiB"),
    ("memory", no_room, f"{tempfile.gettempdir()} takes no file of 16 MiB: No space left"),
    ("memory", small_container("memory.max", "memory.current"), "1.0 GiB free, and 2 are wanted"),
    ("gloo", lambda p: p.setenv("GLOO_SOCKET_IFNAME", "nosuchinterface0"), "process group"),
    ("gloo", comes_back([3.0, 2.0]), "came back wrong"),
    ("gloo", comes_back([3.0, 3.0], ops=()), "the trace shows []"),
    ("gloo", slow_names, "took 12 s"),
    ("mistakes", nobody_tells, "a mistake was made, and nobody told it"),
    ("mistakes", names_are_forgotten, "a mistake was made, and told without its line"),
    ("simulate", comes_back([1.0] * 8), "came back wrong"),
    ("NCCL", lambda p: p.setattr(torch.cuda, "device_count", lambda: 0), "no GPU is visible"),
    ("NCCL", gpus_that_do_not_talk, "CourseError: no group"),
]


def test_every_question_is_broken_in_a_test():
    assert list(dict.fromkeys(name for name, _, _ in BROKEN)) == list(BY_NAME)
    assert {*BY_NAME} - {*doctor.NEEDED} == NOT_NEEDED
    assert all(q.remedy and "\n" not in q.remedy and len(q.remedy) < 90 for q in QUESTIONS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "break_it", "words"), BROKEN)
def test_what_is_broken_is_told_in_a_line_with_its_remedy(name, break_it, words, monkeypatch):
    with monkeypatch.context() as patch:
        break_it(patch)
        finding = examine(BY_NAME[name], {})
    assert finding.state == ("note" if name in NOT_NEEDED else "MISSING")
    assert words in finding.text
    assert not any(noise in finding.text for noise in ("\n", "enforce fail"))
    assert finding.remedy == BY_NAME[name].remedy


def test_only_what_lessons_need_counts_for_the_exit_code(capsys):
    def lacking(name: str) -> list[Question]:
        fine = [question._replace(ask=lambda: "fine") for question in QUESTIONS]
        return [q._replace(ask=fails(Problem("none"))) if q.name == name else q for q in fine]

    for name in BY_NAME:
        assert main(questions=lacking(name)) == (name not in NOT_NEEDED)
    assert main(questions=lacking("")) == 0
    capsys.readouterr()
    main(questions=lacking("torch"))
    printed = capsys.readouterr().out
    assert "MISSING torch       none\n" in printed
    assert BY_NAME["torch"].remedy in printed
    assert "MISSING gloo        not tried\n" in printed
    assert "mend torch first" in printed


def test_it_says_in_which_mode_lessons_run():
    fine = dict.fromkeys(BY_NAME, "ok")
    assert doctor.say_modes(fine) == (
        "Every lesson runs here: on real ranks with gloo, on simulated ranks, "
        'on the GPUs wherever you write backend="nccl".'
    )
    assert doctor.say_modes(fine | {"JupyterLab": "note"}).endswith(
        ". Open them in VS Code, Colab or the like."
    )
    assert "GPU" not in doctor.say_modes(fine | {"NCCL": "note"})
    assert "simulate() end in an error" in doctor.say_modes(fine | {"simulate": "note"})
    assert doctor.say_modes(fine | {"gloo": "MISSING"}).endswith("mended: gloo.")


def test_what_is_fine_is_told_with_its_version_and_place(monkeypatch):
    two_gpus(monkeypatch)
    comes_back([3.0, 3.0])(monkeypatch)
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    monkeypatch.setattr(Path, "read_text", fails(OSError("no such file")))
    assert examine(BY_NAME["NCCL"], {}).text == "2.30.7, an all_reduce over 2 × H200"
    assert ", in Colab: one GPU, so one rank with NCCL" in examine(BY_NAME["Python"], {}).text
    assert "does not say how much is free" in examine(BY_NAME["memory"], {}).text


def test_a_torch_that_does_not_import_is_a_finding(tmp_path):
    (tmp_path / "torch.py").write_text('raise ImportError("libcudart.so: no such file")')
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [sys.executable, "-P", "-m", "course_lib", "doctor"]
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "MISSING torch       ImportError: libcudart.so: no such file" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
