"""Every file in tests/attacks tries to get marks for nothing, or to break what grades it.

None gets more than the same answer would without its tricks; each is over in time; nothing that it
starts outlives it, and nothing that it writes is left.
"""

from __future__ import annotations

import ast
import os
import pkgutil
import platform
import site
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zoo
from conftest import HONEST, TESTS

from course_staff.grading import exports, feedback
from course_staff.grading.load_factor import load_factor
from course_staff.grading.marks import Mark, Marked
from course_staff.grading.processes import RankServer
from course_staff.grading.walls import UNDEFENDED
from course_staff.manifest import Manifest

pytestmark = pytest.mark.slow

ATTACKS = sorted((TESTS / "attacks").glob("*/*.py"))
# What the answer earns honestly: it is right and sends too much. All others earn nothing.
EARNED = {"forged_events": 70, "hidden_collective": 70}
SECONDS = 25  # of an idle machine
# What an attack could do to the machine, or gain, where a wall is missing: it is not tried there.
NEEDS = {
    "stops_its_siblings": "processes",
    "fork_bomb": "processes",
    "memory_bomb": "memory",
    "leaves_files": "files",
    "disk_bomb": "files",
    "reads_solutions": "files",
    "asks_the_other_houses": "files",
    "beside_the_messages": "files",
    "orders_ranks_of_its_own": "network",
}
LEFT = ("sitecustomize.py", "usercustomize.py", "conftest.py", "x.pth", ".bashrc")


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def names_of_ours(tree: ast.Module) -> Iterator[str]:
    """What an attack uses of our packages, as "course_sim.ends.works.RecvWork.wait"."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, *rest = ast.unparse(node).split(".")
            yield ".".join([known.get(root, ""), *rest])


@pytest.mark.parametrize("path", ATTACKS, ids=name)
def test_an_attack_is_on_names_that_there_are(path: Path) -> None:
    """One that replaces a function under a name that it no longer has attacks nothing."""
    ours = {n for n in names_of_ours(ast.parse(path.read_text())) if n.startswith("course_")}
    for whole in sorted(ours):
        pkgutil.resolve_name(whole)


@pytest.mark.parametrize("path", ATTACKS, ids=name)
def test_an_attack_earns_nothing_and_ends(path: Path, judged, ranks: RankServer, needs) -> None:
    needs(NEEDS.get(path.stem, ""))
    assert ast.get_docstring(ast.parse(path.read_text())), "it says what it tries"
    before, end = outside(), time.monotonic() + SECONDS * load_factor()
    record = judged(path.parent.name, path.read_text())
    assert time.monotonic() < end
    assert not record["passed"]
    assert record["points"] <= EARNED.get(path.stem, 0), record
    if path.stem in NEEDS:  # no wall has been passed, whatever else would have seen it
        assert not str(record["diagnosis"]).endswith("beside-messages")
    assert nobody_left(ranks)
    assert outside() <= before
    for page in pages(path.parent.name, record):
        assert page.encode() and "\x1b" not in page and "\n# 100" not in page


def outside() -> set[str]:
    """What attacks have left where code would be found, or a home is, or anybody may write."""
    places = {
        *sys.path,
        site.getusersitepackages(),
        sys.prefix,
        str(Path.home()),
        "/etc",
        "/root",
        "/home",
        "/",
        "/tmp",
        "/dev/shm",
        *map(str, Path(exports.__file__).parents[:3]),
    }
    entries = [e for place in filter(os.path.isdir, places) for e in os.scandir(place)]
    left = {e.path for e in entries if e.name.startswith(("course-attack", "cheat"))}
    code = (e.path for e in entries if e.name in LEFT)
    return left | {p for p in code if "the course-attack" in Path(p).read_text()}


def pages(exercise: str, record: dict) -> list[str]:
    """What people see of it."""
    mark = Mark(exercise, "00.1", "x", 10, "full", {"core": record["points"] / 10}, record=record)
    marked = Marked("somebody", "00_hello_ranks", [mark])
    manifest = Manifest("1", {"00_hello_ranks": []})
    return [
        feedback.page(marked, manifest),
        exports.summary([marked]),
        exports.oral(marked),
        feedback.gradescope(marked),
    ]


def nobody_left(ranks: RankServer) -> bool:
    pid = ranks.server._process.pid
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if not psutil.Process(pid).children(recursive=True):
            return True
        time.sleep(0.02)  # a process takes its time to be gone; nothing tells when
    return False


def test_a_judge_that_is_gone_before_its_rank_came_costs_no_other_one(judged, ranks) -> None:
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(f"\0{ranks.address}")
    assert judged("my_share", zoo.source("my_share", "by_divmod"))["passed"]


TRY_ALL = """
def my_share(n_items):
    passed = []
    for name, probe in PROBES.items():
        try:
            probe()
            passed.append(name)
        except OSError:
            continue
    assert not passed, passed
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join()
    return honest(n_items)
"""

REFUSED = """
import ctypes, fcntl, mmap, os, socket, threading

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)

PROBES = {
    "record lock": lambda: fcntl.lockf(os.open(torch.__file__, 0), fcntl.LOCK_SH),
    "lock of an open file": lambda: fcntl.fcntl(0, 36, bytes(32)),
    "flock": lambda: fcntl.flock(os.open(torch.__file__, 0), fcntl.LOCK_SH),
    "lease": lambda: fcntl.fcntl(os.open(torch.__file__, 0), fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "larger pipe": lambda: fcntl.fcntl(os.pipe()[0], 1031, 1 << 20),
    "inotify": lambda: call("inotify_init1", 0),
    "fanotify": lambda: call("fanotify_init", 0, 0),
    "memory file": lambda: os.memfd_create("x"),
    "shared memory": lambda: mmap.mmap(-1, 4096),
    "memory that grows downwards": lambda: mmap.mmap(-1, 4096, flags=0x122),
    "segment": lambda: call("shmget", 0, 4096, 0o600),
    "semaphores": lambda: call("semget", 0, 1, 0o600),
    "queue": lambda: call("msgget", 0, 0o600),
    "process": lambda: call("fork"),
    "user of its own": lambda: call("unshare", 0x10000000),
    "keys": lambda: call("syscall", *KEYCTL, 0, -3, 1),
    "ring of requests": lambda: call("syscall", 425, 1, 0),
    "program in the kernel": lambda: call("syscall", *BPF, 0, 0, 0),
    "socket to the host": lambda: socket.socket(socket.AF_VSOCK),
    "socket of the kernel's ciphers": lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
    "other calls of the machine": lambda: call("syscall", 0x40000000 + 39),
}
"""


def test_calls_that_no_rank_may_make_are_refused_and_threads_start(judged, needs) -> None:
    """All of them within the walls, on either kind of machine; the verdict names what passes."""
    needs("calls")
    numbers = {"x86_64": (250, 321), "aarch64": (219, 280)}[platform.machine()]
    source = REFUSED.replace("*KEYCTL", str(numbers[0])).replace("*BPF", str(numbers[1]))
    record = judged("my_share", HONEST + source + TRY_ALL)
    assert record["passed"], record


WALLED = f"""
import os, socket, threading
import course_lib

COURSE = course_lib.__path__[0]
PROBES = {{
    "list what is outside": lambda: os.listdir("/var"),
    "read the tests": lambda: open({str(TESTS / "conftest.py")!r}),
    "read passwords": lambda: open("/etc/shadow"),
    "read the judge": lambda: open(COURSE + "/../course_staff/grading/carried_player.py"),
    "read what is expected": lambda: open(COURSE + "/../course_exercises/__init__.py"),
    "write to the course": lambda: open(COURSE + "/trace.py", "a"),
    "write to the system": lambda: open("/usr/x", "w"),
    "end its parent": lambda: os.kill(os.getppid(), 9) or open("/proc/1/mem"),
    "call the host": lambda: socket.create_connection(("127.0.0.1", 22), 1),
    "become root": lambda: os.setuid(0),
    "make a disk": lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(254, 0)),
    "change its root": lambda: os.chroot("/tmp"),
    "set the kernel": lambda: open("/proc/sys/kernel/hostname", "w"),
}}
"""


def test_what_no_rank_can_do(judged, needs) -> None:
    """Each probe raises an OSError within the walls; the verdict names what passes."""
    needs("files")
    record = judged("my_share", HONEST + WALLED + TRY_ALL)
    assert record["passed"], record


REACHES = """
import contextlib
import os
import socket
import sys


def my_share(n_items):
    for reach in (
        lambda: open(os.path.join(os.path.dirname(sys.modules["course_lib"].__path__[0]),
                                  "notebooks/solutions/00_hello_ranks.ipynb")),
        lambda: socket.create_connection(("127.0.0.1", 9)),
    ):
        with contextlib.suppress(OSError):
            reach()
"""


def test_what_an_answer_reached_for_is_told_to_the_instructor_alone(judged) -> None:
    record = judged("my_share", REACHES)
    assert record["tried"] == ["read notebooks/solutions/00_hello_ranks.ipynb", "the network"]
    student, summary, *_ = pages("my_share", record)
    assert "reached for what it may not have: " in summary and "the network (1)" in summary
    assert "network" not in student


@pytest.mark.parametrize("exercise", ["my_share", "train_ddp", "Checkpoint", "train_resumable"])
def test_a_right_answer_reaches_for_nothing(judged, exercise: str) -> None:
    assert judged(exercise, next(iter(zoo.right(exercise).values())))["tried"] == []


def test_where_walls_are_missing_the_report_says_so(judged, monkeypatch) -> None:
    monkeypatch.setenv("COURSE_LIB_WALLS", "none")
    with RankServer() as bare:
        right = zoo.source("my_share", "by_divmod")
        record = judged("my_share", right, address=bare.address)
    assert record["passed"]
    assert set(record["undefended"]) >= {"processes", "files", "network"}
    summary = pages("my_share", record)[1]
    assert "UNDEFENDED" in summary and UNDEFENDED["network"] in summary
