"""The walls around one process of a student's code: what the system allows, and what it does not.

    keeper   one for each rank; runs no student's code; starts it, watches it, ends it
      └── rank    its own user, processes, network without any device, mounts, shared memory

    / ── a file system of its own, read-only: Python, torch, the course; no exercises
    /tmp, /dev/shm ── 16 MB each, gone with the process     no home, no submissions, no solutions

``build`` raises nothing where a wall cannot be built: it returns those that stand. Without
namespaces (in a container that forbids them) limits and an own session remain; then what
the process may still do is named in every report: see ``UNDEFENDED``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from course_lib.versions import FOR_LEARNERS
from course_staff.grading import seccomp

# What is open to a student's code where a wall is missing, in the words of a report.
UNDEFENDED = {
    "processes": "see, signal and read other processes of the same user, the judge among them, "
    "and leave some behind",
    "files": "read and write whatever files the grading user may, and leave some behind",
    "network": "use the network, and pass data between ranks beside the counted messages",
    "user": "use every right of the user who grades",
    "memory": "use as much memory as the machine gives",
    "calls": "pass data between ranks by locks of files, and hold memory that no process has",
}

_NEWNS, _NEWUTS, _NEWIPC = 0x20000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _REC, _PRIVATE = 32, 4096, 16384, 1 << 18
_NOATIME, _NODIRATIME, _RELATIME, _ST_RELATIME = 1024, 2048, 1 << 21, 4096
_DETACH = 2
_DEATH_SIGNAL, _DUMPABLE, _NO_NEW_PRIVS = 1, 4, 38
NOBODY = 65534
HOUSE = Path(__file__).resolve().parents[2]
# What a rank may read of the course; the exercises say what is expected of an answer.
FOR_RANKS = [name for name in FOR_LEARNERS if name != "course_exercises"]
WITHOUT = "COURSE_LIB_WALLS"  # this variable is "none" where tests want no namespaces


@dataclass(frozen=True)
class Limits:
    """What one rank's process may use, and how long playing may take, on an idle machine.
    ``memory_mb`` is on top of what torch takes."""

    cpu_seconds: int = 120
    memory_mb: int = 1024
    processes: int = 64  # threads count
    files: int = 128
    file_mb: int = 16
    play_seconds: float = 10.0
    exercise_seconds: float = 90.0  # all cases, once
    submission_seconds: float = 600.0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> None:
    function = getattr(_libc(), name, None)
    if function is None:
        raise OSError(f"no {name} here")
    if function(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [None if w is None else w.encode() for w in (source, target, kind)]
    _call("mount", *words, ctypes.c_ulong(flags), data.encode() or None)


def _prctl(option: int, value: int = 0) -> None:
    _call("prctl", option, ctypes.c_ulong(value), 0, 0, 0)


# ---- in the keeper -----------------------------------------------------------------------------


def separate() -> set[str]:
    """Leave the namespaces of the system; the next child is the first process of its own world."""
    if os.environ.get(WITHOUT) == "none":
        return set()
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEWPID | _NEWNET | _NEWIPC | _NEWUTS | (_NEWUSER if user else 0))
        if user:
            _map_to_itself(user, group)
    except OSError:
        return set()
    return {"processes", "network"}


def _map_to_itself(user: int, group: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


# ---- in the rank's process, before any student's code --------------------------------------------


def build(
    limits: Limits,
    outer: set[str],
    place: str,
    hidden: list[str],
    first: Callable[[set[str], Callable[[], object]], None] = lambda walls, seal: None,
) -> list[str]:
    """Build the walls that can be built; returns the names of those that stand. ``place`` is an
    empty folder. The last wall forbids processes, so ``first`` may start some before it is built.
    ``first`` is called with the walls that stand by then, and with a function that builds the last
    one, which each of those processes has to call."""
    walls, used = set(outer), _data()
    if "processes" in outer:
        walls |= _attempt(lambda: _own_files(place, hidden, limits.file_mb), "files")
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_FSIZE, limits.file_mb << 20),
        (resource.RLIMIT_NOFILE, limits.files),
    ):
        _limit(what, most)
    walls |= _attempt(lambda: _become_nobody("files" in walls), "user")
    # Counted for a user: where others run under the same one, theirs come on top.
    others = 0 if "processes" in walls else _tasks_of(os.getuid())
    _limit(resource.RLIMIT_NPROC, limits.processes + others)
    folder = Path("/tmp" if "files" in walls else place)
    for name in ("home", "work"):
        (folder / name).mkdir()
    os.environ.clear()
    os.environ |= {"HOME": str(folder / "home"), "TMPDIR": str(folder / "work"), "USER": "student"}
    os.environ |= {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    os.chdir(folder / "work")
    seal = partial(_seal, used + (limits.memory_mb << 20))
    first(walls, seal)
    return sorted(walls | seal())


def _seal(memory: int) -> set[str]:
    walls = _attempt(seccomp.install, "calls")
    if walls:  # nothing else counts what processes share, or children have
        walls |= _attempt(lambda: _limit(resource.RLIMIT_DATA, memory), "memory")
    return walls


def _data() -> int:
    """Bytes of this process that it can write to, and that nobody shares: what RLIMIT_DATA limits.
    (RLIMIT_AS would keep torch from loading.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


def end_with_parent(number: int) -> None:
    """Have this process ended when its parent is, who may be killed."""
    _prctl(_DEATH_SIGNAL, number)


def _attempt(wall: Callable[[], None], *names: str) -> set[str]:
    try:
        wall()
    except OSError:
        return set()
    return set(names)


def readable() -> list[str]:
    """What a Python with torch and the course needs to read."""
    wanted = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    wanted += [str(HOUSE / name) for name in FOR_RANKS]
    wanted += ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"]
    wanted += [p for p in sys.path if "site-packages" in p or "dist-packages" in p]
    found: list[str] = []
    # An environment may be a link, and what it leads to is needed as well.
    for path in (way(p) for p in wanted for way in (os.path.realpath, os.path.abspath)):
        inside = any(path == f or path.startswith(f.rstrip("/") + "/") for f in found)
        if path != "/" and os.path.exists(path) and not inside:
            found.append(path)
    return found


def _own_files(place: str, hidden: list[str], file_mb: int) -> None:
    """A root of our own at ``place``, with what is readable at the same paths as before."""
    _call("unshare", _NEWNS)  # not before: the keeper goes on seeing the system's
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", place, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    os.mkdir(f"{place}/tmp")
    small = f"size={file_mb}m,nr_inodes=4096,mode=1777"
    _mount("tmpfs", f"{place}/tmp", "tmpfs", _NOSUID | _NODEV, small)
    for path in readable():  # after /tmp, because the course may lie in there
        _bring(path, place)
    for path in hidden:
        if os.path.isdir(place + path):
            _mount("tmpfs", place + path, "tmpfs", _NOSUID | _NODEV | _RDONLY, "size=4k,mode=555")
        elif os.path.exists(place + path):
            _mount("/dev/null", place + path, None, _BIND)
    for name in ("dev", "proc", "etc"):
        os.makedirs(f"{place}/{name}", exist_ok=True)
    for name in ("null", "zero", "full", "random", "urandom"):
        Path(f"{place}/dev/{name}").touch()
        _mount(f"/dev/{name}", f"{place}/dev/{name}", None, _BIND)
    Path(f"{place}/etc/passwd").write_text("student:x:65534:65534::/tmp/home:/bin/false\n")
    os.mkdir(f"{place}/dev/shm")  # another file system than /tmp, as elsewhere
    _mount("tmpfs", f"{place}/dev/shm", "tmpfs", _NOSUID | _NODEV, small)
    with contextlib.suppress(OSError):  # a container that masks /proc forbids a new one
        _mount("proc", f"{place}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    os.chdir(place)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/")
    _mount(None, "/", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


def _bring(path: str, place: str) -> None:
    """Make ``path`` readable, and no more than that, below ``place``."""
    target = place + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        if not os.path.lexists(target):
            os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    _mount(path, target, None, _BIND | _REC)
    before = os.statvfs(target).f_flag
    kept = before & (_NOSUID | _NODEV | _NOEXEC | _NOATIME | _NODIRATIME)
    if before & _ST_RELATIME:  # the one that has another number where it is read
        kept |= _RELATIME
    _mount(None, target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | kept)


def _become_nobody(own_files: bool) -> None:
    """No user of the system, no rights, and no way to get any."""
    if not own_files:
        raise OSError("without files of its own it stays who it is")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        _prctl(_DUMPABLE, 1)
        with contextlib.suppress(OSError):  # so that its processes are counted by themselves
            _call("unshare", _NEWUSER)
            _map_to_itself(NOBODY, NOBODY)
    _prctl(_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    _prctl(_DUMPABLE, 0)


def _drop_capabilities() -> None:
    header = struct.pack("Ii", 0x20080522, 0)
    _call("capset", header, struct.pack("6I", *[0] * 6))


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (value, value))


def _tasks_of(user: int) -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == user:
                count += len(os.listdir(entry / "task"))
    return count
