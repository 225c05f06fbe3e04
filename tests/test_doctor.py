"""The doctor: every probe can fail, says so in a line, and names its remedy."""

from __future__ import annotations

import builtins
import importlib
import importlib.metadata
import io
import os
import resource
import shutil
import socket
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
from course_lib import CourseError, doctor
from course_lib.doctor import PROBES, Finding, Probe, examine, lessons, main, probes
from course_lib.doctor.lessons import uses
from course_lib.doctor.probes import Problem
from course_lib.simulated import compat

ROOT = Path(__file__).resolve().parents[1]
BY_NAME = {probe.name: probe for probe in PROBES}


def fails(error: BaseException) -> Callable:
    def fail(*_args: object, **_settings: object) -> None:
        raise error

    return fail


def not_importable(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(sys.modules, name, None)


def not_installed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(importlib.metadata, "version", fails(importlib.metadata.PackageNotFoundError()))


def limited(kind: int, number: int) -> Callable[[pytest.MonkeyPatch], None]:
    def limit(patch: pytest.MonkeyPatch) -> None:
        real = resource.getrlimit
        patch.setattr(resource, "getrlimit", lambda k: (number, number) if k == kind else real(k))

    return limit


def nearly_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=1 << 20))


def comes_back(results: list[float], **more: object) -> Callable[[pytest.MonkeyPatch], None]:
    """Every run returns these results."""

    def patch_run(patch: pytest.MonkeyPatch) -> None:
        done = SimpleNamespace(results=results, world_size=len(results), **more)
        for name in ("run", "simulate"):
            patch.setattr(course_lib, name, lambda *_args, **_settings: done)

    return patch_run


def slow_names(patch: pytest.MonkeyPatch) -> None:
    comes_back([3.0, 3.0])(patch)
    clock = iter((0.0, 12.0))
    patch.setattr(probes.time, "perf_counter", lambda: next(clock))


def gpu_without_nccl(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dist, "is_nccl_available", lambda: True)
    patch.setattr(torch.cuda, "device_count", lambda: 2)
    patch.setattr(torch.cuda.nccl, "version", lambda: (2, 30, 7))
    patch.setattr(course_lib, "run", fails(CourseError("the ranks could not form a group")))


# probe → ways to break what it looks at, each with a word that the finding must hold
BROKEN: dict[str, list[tuple[Callable[[pytest.MonkeyPatch], None], str]]] = {
    "Python": [(lambda p: p.setattr(sys, "version_info", (3, 10, 1)), "too old")],
    "torch": [
        (not_importable("torch"), "torch"),
        (lambda p: p.setattr(torch, "__version__", "2.9.1+cpu"), "2.9.1+cpu is too old"),
        (lambda p: p.setattr(dist, "is_available", lambda: False), "without torch.distributed"),
        (lambda p: p.setattr(builtins, "__import__", fails(OSError("libcudart.so: no such file"))),
         "libcudart.so"),
    ],
    "torchvision": [
        (not_importable("torchvision"), "torchvision"),
        (lambda p: p.setattr(importlib, "import_module",
                             fails(RuntimeError("operator torchvision::nms does not exist"))),
         "torchvision::nms"),
    ],
    "numpy": [(not_importable("numpy"), "numpy")],
    "matplotlib": [(not_importable("matplotlib"), "matplotlib")],
    "cloudpickle": [(not_importable("cloudpickle"), "cloudpickle")],
    "JupyterLab": [(not_installed, "not installed")],
    "ipykernel": [(not_installed, "not installed")],
    "nbval": [(not_installed, "not installed")],
    "browser": [(lambda p: p.setenv("CHROMIUM", "no-such-browser"), "none found")],
    "loopback": [
        (lambda p: p.setattr(socket, "create_server", fails(OSError(99, "no such address"))),
         "no such address"),
        (lambda p: p.setattr(socket, "create_connection", fails(TimeoutError("timed out"))),
         "timed out"),
    ],
    "nameless files": [
        (lambda p: p.setattr(os, "posix_fallocate", fails(OSError(28, "No space left"))),
         "No space left"),
        (lambda p: p.setattr(os, "memfd_create", fails(PermissionError(1, "not permitted"))),
         "not permitted"),
    ],
    "temporary files": [
        (lambda p: p.setattr(tempfile, "TemporaryFile", fails(OSError(30, "Read-only"))),
         "Read-only"),
        (nearly_full, "1 MiB free"),
    ],
    "shared memory": [(nearly_full, "/dev/shm has 1 MiB free, and 256 MiB are wanted")],
    "open files": [(limited(resource.RLIMIT_NOFILE, 64), "at most 64, and 256 are wanted")],
    "processes": [
        (limited(resource.RLIMIT_NPROC, 30), "at most 30"),
        (lambda p: p.setattr(probes, "_cgroup",
                             {"pids.max": 100, "pids.current": 90}.get), "at most 10,"),
    ],
    "memory": [
        (lambda p: p.setattr(probes, "_available", lambda: 300 << 20), "300 MiB free"),
        (lambda p: p.setattr(probes, "_cgroup", {"memory.max": 3 << 30,
                                                 "memory.current": 2 << 30}.get), "1.0 GiB free"),
    ],
    "cores": [(lambda p: p.setattr(os, "sched_getaffinity", lambda _pid: {3}), "1: ranks")],
    "gloo": [
        (lambda p: p.setenv("GLOO_SOCKET_IFNAME", "nosuchinterface0"), "process group"),
        (comes_back([3.0, 2.0]), "came back wrong"),
    ],
    "rendezvous": [(slow_names, "took 12 s"), (comes_back([1.0, 1.0]), "came back wrong")],
    "recording": [
        (comes_back([3.0, 3.0], trace=SimpleNamespace(events=[])), "the trace shows []"),
    ],
    "simulate": [
        (lambda p: p.setattr(compat, "missing", lambda: "_world is not there"), "_world"),
        (comes_back([1.0] * 8), "came back wrong"),
    ],
    "NCCL": [
        (lambda p: p.setattr(dist, "is_nccl_available", lambda: False), "without NCCL"),
        (lambda p: p.setattr(torch.cuda, "device_count", lambda: 0), "no GPU is visible"),
        (gpu_without_nccl, "could not form"),
    ],
}  # fmt: skip
NOT_NEEDED = {
    *("nbval", "browser", "shared memory", "memory", "cores", "recording", "simulate", "NCCL"),
}


def test_every_probe_is_broken_in_a_test():
    assert list(BROKEN) == [probe.name for probe in PROBES]
    assert {probe.name for probe in PROBES if not probe.needed} == NOT_NEEDED


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name, ways in BROKEN.items() for way in range(len(ways))]
)
def test_a_broken_probe_says_what_is_wrong_and_how_to_mend_it(name, way, monkeypatch, capsys):
    probe = BY_NAME[name]
    break_it, word = BROKEN[name][way]
    with monkeypatch.context() as patch:
        break_it(patch)
        finding = examine(probe)
    assert finding.state == ("note" if name in NOT_NEEDED else "MISSING")
    assert word in finding.text
    assert "\n" not in finding.text
    assert "enforce fail" not in finding.text
    assert finding.remedy == probe.remedy
    assert main(probes=[probe._replace(look=fails(Problem(finding.text)))]) == (
        1 if probe.needed else main(probes=[])
    )
    printed = capsys.readouterr().out
    assert finding.text in printed
    assert probe.remedy in printed


# A machine may lack what is not needed; this one, which runs the tests, has all that is.
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in NOT_NEEDED])
def test_here_the_probe_is_fine(name):
    assert examine(BY_NAME[name]).state == "ok", examine(BY_NAME[name])


def test_a_probe_after_one_that_failed_is_not_tried():
    assert all(p.after in list(BY_NAME)[: list(BY_NAME).index(p.name)] for p in PROBES if p.after)
    finding = examine(BY_NAME["recording"], {"gloo": "MISSING"})
    assert finding == Finding("recording", "note", "not tried", "mend gloo first")
    assert examine(BY_NAME["rendezvous"], {"gloo": "MISSING"}).state == "MISSING"


def test_remedies_are_one_line():
    assert all(p.remedy and "\n" not in p.remedy and len(p.remedy) < 90 for p in PROBES)


@pytest.mark.slow
def test_the_command_from_the_shell():
    command = [sys.executable, "-m", "course_lib", "doctor"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for name in BY_NAME:
        assert f" {name} " in done.stdout


def test_a_torch_that_does_not_import_is_a_finding(tmp_path):
    (tmp_path / "torch.py").write_text('raise ImportError("libcudart.so: no such file")')
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "course_lib", "doctor"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 1
    assert "MISSING torch            ImportError: libcudart.so: no such file" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fall_over(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    main(probes=[Probe("GPUs", lambda: "2 × H200", "…")])
    terminal.seek(0)
    assert "2 ? H200" in terminal.read()


def test_an_error_without_words_is_named_by_its_class():
    assert examine(Probe("x", fails(RuntimeError()), "mend it")).text == "RuntimeError"
    assert examine(Probe("x", fails(Problem("two\nlines")), "mend it")).text == "two"


def test_what_ranks_print_does_not_disturb_the_report(capsys):
    assert examine(Probe("x", lambda: print("noise") or "fine", "")) == Finding("x", "ok", "fine")
    assert capsys.readouterr().out == ""


# ---- lessons ------------------------------------------------------------------------------------

FINE = {probe.name: "ok" for probe in PROBES}
SOURCE = """
# %% [markdown]
# A word about simulate(f) in the text is no call.
# %%
run(hello)
check(hello)
"""


def lesson(tmp_path: Path, source: str, **states: str) -> Finding:
    (tmp_path / "07_groups.py").write_text(source)
    (found,) = lessons(FINE | states, tmp_path)
    assert found.name == "07_groups"
    return found


def test_a_lesson_says_in_which_mode_it_runs(tmp_path):
    assert uses(SOURCE) == {"run", "check"}
    assert lesson(tmp_path, SOURCE, NCCL="note").text == (
        "real ranks on gloo; recorded; checks on real and simulated ranks"
    )
    assert 'NCCL, by backend="nccl"' in lesson(tmp_path, SOURCE).text
    assert "simulated ranks" in lesson(tmp_path, SOURCE + "simulate(f, world_size=9)\n").text
    assert lesson(tmp_path, "x = 1\n").text == "one process"


@pytest.mark.parametrize(
    ("probe", "source", "state", "words"),
    [
        ("gloo", SOURCE, "MISSING", "no real ranks"),
        ("torch", SOURCE, "MISSING", "no real ranks"),
        ("recording", SOURCE, "ok", "not recorded"),
        ("simulate", SOURCE, "ok", "; checks on real ranks"),
        ("simulate", "simulate(f, world_size=9)", "ok", "end in an error"),
    ],
)
def test_a_lesson_says_what_it_will_lack(tmp_path, probe, source, state, words):
    found = lesson(tmp_path, source, **{probe: "MISSING" if state == "MISSING" else "note"})
    assert found.state == state
    assert words in found.text


@pytest.mark.parametrize("source", [b"def (:\n", b"\xff\xfe\xfa"])
def test_a_lesson_that_cannot_be_read_is_told(tmp_path, source):
    (tmp_path / "03_broken.py").write_bytes(source)
    (found,) = lessons(FINE, tmp_path)
    assert found.state == "MISSING"
    assert "cannot be read" in found.text


def test_a_lesson_that_cannot_run_counts_for_the_exit_code(tmp_path, monkeypatch, capsys):
    (tmp_path / "00_hello_ranks.py").write_text(SOURCE)
    monkeypatch.setattr(doctor, "lessons", lambda states: lessons(states, tmp_path))
    fine = [Probe(name, lambda: "fine", "") for name in BY_NAME]
    assert main(probes=fine) == 0
    without = [p if p.name != "gloo" else p._replace(look=fails(Problem("no"))) for p in fine]
    assert main(probes=without) == 1
    assert "MISSING: gloo, 00_hello_ranks" in capsys.readouterr().out
