"""Lives of a class that saves: each is a process of its own, and may be killed at a point.

    process that plays ── story ──► small process ──fork──► one life: save, or load
            ▲                        owns the files             │ killed at a point, or not
            └──────── facts ──────────────┘◄──── what it saw ────┘

The small process is forked before any answer has run and before there are threads. It runs no
answer, ends when its socket is closed, and takes files and lives along. A *point* is the number of
an event (before which a file is opened to be written, renamed, removed, …) and a number of bytes:
None kills before the event, k lets no file grow beyond k bytes from there on. An event is what
Python's audit hooks tell; torch's own writer opens files without one, and the limit holds for it.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import posix
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from course_check.harness.seen import leaves

CHANGES = {
    f"os.{name}" for name in ("rename", "remove", "rmdir", "mkdir", "link", "symlink", "truncate")
}
PATIENCE = 10  # seconds of a life
HANGS = "does not come to its end"
OTHER_DISK = Path("/dev/shm")
Point = tuple[int, int | None]
Facts = dict[str, Any]
Live = Callable[..., Facts]  # takes by keyword what is special about a Life
Story = Callable[[Live, Path], Facts]

_asked: Connection | None = None  # this process's small one


class Failed(Exception):
    """A life has come to grief, and no story has killed it."""


@dataclass(frozen=True)
class Life:
    """What a process does before it ends: it loads; then, as a job that goes on, it saves."""

    states: list[dict]
    path: Path
    save: int | None = None  # the number of a state
    point: Point | None = None  # of the save, at which it is killed
    neighbour: Path | None = None  # a checkpoint that is saved at the point, in place of a death
    room: int | None = None  # bytes a file may have; then the disk is full
    read_only: bool = False


@contextmanager
def folders() -> Iterator[list[str]]:
    """A folder for the checkpoints, and one for all that is written elsewhere. They lie on two file
    systems, if there are two.
    """
    other = str(OTHER_DISK) if os.access(OTHER_DISK, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=other) as one, tempfile.TemporaryDirectory() as two:
        yield [one, two]


def start(
    load: Callable[[], Any], places: list[str], enter: Callable[[], Any] = lambda: None
) -> None:
    """Fork the small process, for these ``folders``. Each life calls ``enter``, and then ``load``,
    which returns the answer.
    """
    global _asked
    here, there = Pipe()
    if os.fork() == 0:
        here.close()
        _serve(there, places, load, enter)
    there.close()
    _asked = here


class Lives:
    """An exercise declares this if its answer is killed: see ``course_check.exercise.Lives``."""

    folders, start = staticmethod(folders), staticmethod(start)


def play(story: Story, states: list[dict]) -> Facts:
    """Have the small process play a story, a function of a module."""
    assert _asked is not None, "no small process has been started"
    _asked.send_bytes(pickle.dumps((story, states)))
    return json.loads(_asked.recv_bytes())


# ---- the small process ---------------------------------------------------------------------------


def _serve(talk: Connection, places: list[str], load: Callable, enter: Callable) -> NoReturn:
    sys.dont_write_bytecode = True
    folder, scratch = places
    tempfile.tempdir = os.environ["TMPDIR"] = scratch  # not where the checkpoints are
    buffer = io.BytesIO()
    torch.save({"warm": torch.zeros(1)}, buffer)  # so that no life has to import what this does
    buffer.seek(0)
    torch.load(buffer, weights_only=True)
    try:
        while True:  # until the socket is closed
            story, states = pickle.loads(talk.recv_bytes())
            path = Path(tempfile.mkdtemp(dir=folder), "state.pt")
            live = partial(_run_life, talk, load, enter, states=states, path=path)
            try:
                facts = story(live, path)
            except Failed as failed:
                facts = {"error": str(failed)}
            talk.send_bytes(json.dumps(facts).encode())
    finally:
        for place in places:  # the process that has made them may be gone
            shutil.rmtree(place, ignore_errors=True)
        os._exit(0)


def _run_life(talk: Connection, load: Callable, enter: Callable, **life: Any) -> Facts:
    """Start a process that lives so; returns what it saw up to its end."""
    here, there = Pipe()
    pid = os.fork()
    if pid == 0:
        try:
            here.close()
            talk.close()
            for facts in _live(Life(**life), load, enter):
                there.send_bytes(json.dumps(facts).encode())
        finally:
            os._exit(0)
    there.close()
    seen: Facts = {}
    try:
        while here in (ready := wait([here, talk], PATIENCE)):
            seen |= json.loads(here.recv_bytes())
        # Something else than the life was ready if the socket is closed: nobody asks any more.
        return seen if ready else seen | {"error": HANGS}
    except EOFError:  # its end
        return seen
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        here.close()


# ---- one life ------------------------------------------------------------------------------------


class Watch:
    """Sees a life's events, and ends it at its point."""

    def __init__(self, life: Life) -> None:
        self.life, self.folder, self.saving = life, life.path.parent, False
        self.answer: Any = None  # loaded later, so that it finds the functions that see its syncs
        for name, module in product(("fsync", "fdatasync", "sync"), (os, posix)):
            setattr(module, name, partial(self.sync, getattr(module, name)))
        self.events: list[list[str]] = []  # what is done, and to which files
        self.start = self.look()
        self.before: list[dict] = []  # what files were like before each event
        self.reads: set[str] = set()
        self.waits: set[str] = set()  # names of files whose writes wait for the disk
        self.synced: dict[tuple[int, int], int] = {}  # by inode its size when it was synced
        self.unsynced: set[str] = set()  # names that files were given too early

    def hook(self, event: str, args: tuple) -> None:
        if event not in CHANGES | {"open"} or isinstance(args[0], int):
            return
        name = os.path.relpath(os.fsdecode(args[0]), self.folder)
        if event == "open" and not _writes(*args[1:3]):
            self.reads.add(name)
        elif self.saving:
            self.changes(event, name, args)

    def changes(self, event: str, name: str, args: tuple) -> None:
        more = [os.path.relpath(os.fsdecode(args[1]), self.folder)] if event == "os.rename" else []
        self.events.append([event.removeprefix("os."), name, *more])
        self.before.append(self.look())
        if name in self.waits or (event == "open" and (args[2] or 0) & os.O_DSYNC):
            self.waits |= {name, *more}
        elif more and os.path.isfile(args[0]) and not self._is_synced(name):
            self.unsynced |= {*more}
        if self.life.read_only and not name.startswith(".."):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), args[0])
        self.reach(len(self.events))

    def reach(self, number: int) -> None:
        """Do what the life's point asks for before the event of this number; 0 is the start."""
        at, most = self.life.point or (None, None)
        if at == number and self.life.neighbour:
            self.meet(self.life.neighbour)
        elif at == number and most is None:
            os.kill(os.getpid(), signal.SIGKILL)
        elif at == number:
            _let_grow(most, signal.SIG_DFL)

    def meet(self, neighbour: Path) -> None:
        """Save a neighbour meanwhile, as another rank would. If that fails, or waits for this save
        at a lock, what is found afterwards tells. It is done in this process, as a graded one may
        start no other.
        """
        self.saving = False
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(2)
        with suppress(Exception):
            self.answer(str(neighbour)).save(self.life.states[2])
        signal.alarm(0)
        self.saving = True

    def look(self) -> dict[int, tuple[int, int]]:
        """The size and the time of each file, by inode: they change when it is written."""
        places = (self.folder, Path(tempfile.gettempdir()))
        infos = [p.lstat() for place in places for p in place.rglob("*") if not p.is_dir()]
        return {i.st_ino: (i.st_size, i.st_mtime_ns) for i in infos if i.st_size}

    def sync(self, plain: Callable, *of: Any) -> None:
        """Note which files are synced. os.sync() names no file, and counts for all that lie here.
        It is not called: it would have every disk of the machine written.
        """
        for fd in of:
            plain(fd)
        places = [fd if isinstance(fd, int) else fd.fileno() for fd in of]
        for place in places or list_files(self.folder).values():
            info = os.stat(place)
            self.synced[info.st_dev, info.st_ino] = info.st_size

    def _is_synced(self, name: str) -> bool:
        info = os.stat(self.folder / name)
        return name in self.waits or self.synced.get((info.st_dev, info.st_ino)) == info.st_size

    def facts(self) -> Facts:
        """What is told of a save that went well. A file counts as unsynced if it has changed, and
        was not synced in the state that it is in, or not before it got its name.
        """
        end = self.look()
        new = {inode for inode, size in end.items() if self.start.get(inode) != size}
        names = [(n, at) for n, at in list_files(self.folder).items() if at.stat().st_ino in new]
        late = [n for n, at in names if n in self.unsynced or not self._is_synced(n)]
        looks = pairwise([self.start, *self.before, end])
        writes = [any(old.get(file) != size for file, size in one.items()) for old, one in looks]
        return {"events": self.events, "writes": writes, "unsynced": late}


def _writes(mode: Any, flags: Any) -> bool:
    return bool((flags or 0) & (os.O_WRONLY | os.O_RDWR)) or bool({*(mode or "")} & {*"wax+"})


def _let_grow(most: int | None, then: Any) -> None:
    """Let no file grow beyond so many bytes; ``then`` is what the signal does that says so."""
    signal.signal(signal.SIGXFSZ, then)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if most is None else most, hard))


def _live(life: Life, load: Callable, enter: Callable) -> Iterator[Facts]:
    """Live: yields what was found, and then how the save went."""
    signal.alarm(3 * PATIENCE)  # the process that waits does so three times at most, or is gone
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    watch = Watch(life)
    try:
        enter()
        answer = watch.answer = load()
        sys.addaudithook(watch.hook)
        checkpoint = answer(str(life.path))
        yield {"found": name_state(checkpoint.load(), life.states), "reads": sorted(watch.reads)}
        if life.save is not None:
            watch.saving = True
            if life.room is not None:
                _let_grow(life.room, signal.SIG_IGN)
            watch.reach(0)
            checkpoint.save(life.states[life.save])
            watch.saving = False
            yield watch.facts()
            yield {"after": name_state(answer(str(life.path)).load(), life.states)}
        yield {"reads": sorted(watch.reads), "done": True}
    except BaseException as error:
        watch.saving = False
        yield {"error": f"{type(error).__name__}: {error}"[:300], "reads": sorted(watch.reads)}


def _give_up(_number: int, _frame: Any) -> NoReturn:
    raise TimeoutError


def name_state(found: Any, states: list[dict]) -> str:
    """The name of a state that was found, in words."""
    for number, state in enumerate(states):
        if _same(found, state):
            return f"state {number}"
    return "None" if found is None else "something else"


def _same(one: Any, other: Any) -> bool:
    here, there = dict(leaves(one)), dict(leaves(other))
    return here.keys() == there.keys() and all(_alike(here[k], there[k]) for k in here)


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b


def list_files(folder: Path) -> dict[str, Path]:
    """By name every file below a folder."""
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
