"""One rank of a student's answer: runs behind walls, and talks to the judge alone.

    fork server ──fork──► keeper ──fork──► rank
                             │               builds its walls, then serves the judge
                             leaves the system's namespaces, waits, and ends as its rank did

The fork server and the keepers run no student's code. It ends a keeper when the judge closes its
socket, and then the rank, which was the first process of its own world, and all that came of it.

    the student's function                 as plain as ever: dist.send, dist.all_reduce, …
        │
    SimulatedGroup, Works, buffers         the simulator's own: course_sim/ends
        │
    Channel ── Asker                       says what was called; the judge's network does it
        │ plain data
      judge                                carries, counts, compares

Everything in this process may be patched, read and forged by the answer. That is why nothing here
counts anything and nothing here knows an expected value: a rank has its own inputs, and what other
ranks send it.
"""

from __future__ import annotations

import ast
import gc
import importlib
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from course_check.harness.answer import AtImport, call_all
from course_check.namespace import statements
from course_exercises import drivers
from course_exercises.drivers import lives
from course_lib import context
from course_lib.rendezvous import torchrun_names
from course_lib.user_code import show_lines, stack_lines
from course_sim.agenda import Abandoned
from course_sim.ends.poison import Buffers
from course_sim.isolation import compat
from course_sim.isolation.private import CONFINED
from course_staff.grading import walls
from course_staff.grading.far import Asker, Groups, Own, plain_line
from course_staff.grading.wire import Ended, Talk, bytes_of, encode

# Modules of what ranks are given. The lessons stay out of a rank's memory and of its files: the
# right function of an exercise would be an answer to it. What drives an answer is in its memory and
# not in its files. The first optimizer imports torch._dynamo, and what loads data the last.
GIVEN = (
    *(f"course_exercises.drivers.{found.name}" for found in iter_modules(drivers.__path__)),
    "torch._dynamo",
    "torchvision.datasets",
)
# What an answer has no business with, by the names of Python's audit events.
REACHES = {
    "socket.connect": "the network",
    "socket.bind": "the network",
    "ctypes.dlopen": "ctypes",
    "os.kill": "another process",
    "open": "files",
    "os.listdir": "files",
    "os.scandir": "files",
}
MOST_TRIED = 5  # are noted
_leave = os._exit  # the answer's own is patched


# ---- the keeper ----------------------------------------------------------------------------------


def kept_from_ranks() -> list[str]:
    """What no rank may read: the grading, what is expected of answers, and solutions. Beside a
    course that is graded with, a wheel of it may be installed."""
    places = {walls.HOUSE, *(Path(place).resolve() for place in sys.path)}
    names = ("course_staff", "course_exercises", "notebooks", "tests")
    return sorted(str(place / name) for place in places for name in names)


def prepare() -> None:
    """In the fork server, before any rank."""
    for name in GIVEN:
        importlib.import_module(name)
    torch.set_num_threads(1)
    gc.collect()


def main(_number: int, fds: Sequence[int], scratch: str) -> NoReturn:
    """The life of a keeper, which has no use for a number."""
    os.setsid()
    (talk_fd,) = fds
    shutil.rmtree(scratch, ignore_errors=True)  # of one that had this number, and was not tidied up
    os.mkdir(scratch, 0o700)
    outer = walls.separate()
    pid = os.fork()
    if pid == 0:
        try:
            _be_rank(talk_fd, outer, scratch)
        finally:
            _leave(0)
    os.close(talk_fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _leave(code if code >= 0 else 128 - code)


def _be_rank(talk_fd: int, outer: set[str], scratch: str) -> None:
    os.setsid()
    talk = Talk(socket.socket(fileno=talk_fd))
    setup = talk.receive()
    first = [partial(_start_lives, setup)] if setup.get("lives") else []
    standing = walls.build(
        walls.Limits(**setup["limits"]), outer, scratch, kept_from_ranks(), *first
    )
    walls.end_with_parent(signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    serve(talk, setup, standing)


def _start_lives(setup: dict[str, Any], standing: set[str], seal: Callable[[], object]) -> None:
    """A process that starts others, each behind all walls; it runs no student's code itself."""
    other = "/dev/shm" if "files" in standing else None
    places = [tempfile.mkdtemp(dir=place) for place in (other, None)]
    lives.start(partial(_loaded, setup), places, seal)


# ---- the rank: beside the student's code -----------------------------------------------------


def serve(talk: Talk, setup: dict[str, Any], standing: list[str]) -> None:
    """Play what the judge asks for, until it closes the socket."""
    try:
        for cell in setup["cells"]:
            show_lines(cell["file"], cell["source"])
        talk.send({"do": "ready", "walls": standing})
        ask = Asker(talk)
        _confine(ask)
        tried: list[str] = []
        loaded = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
        sys.addaudithook(partial(_note_reach, tried, kept_from_ranks(), loaded))
        environment = dict(os.environ)
        with compat.separate_worlds():
            while True:
                message = talk.receive()
                if "play" in message:  # not one more word that another play is over
                    os.environ.clear()
                    os.environ.update(environment)
                    talk.send(_played(setup, message["play"], ask) | {"tried": tried})
    except Ended:
        return


def _note_reach(tried: list[str], kept: list[str], loaded: set, event: str, args: tuple) -> None:
    """Note what the answer reaches for beyond its walls. It is the rank's own word, as the answer
    runs beside it. Files of modules that are ``loaded`` are read to show a line of theirs."""
    what = REACHES.get(event, "")
    if what == "files":
        path = os.path.abspath(os.fsdecode(args[0])) if isinstance(args[0], str | bytes) else ""
        inside = (p for p in (*kept, "/proc") if f"{path}/".startswith(f"{p}/"))
        found = "" if path in loaded else next(inside, "")
        what = f"read {path[len(os.path.dirname(found)) :].strip('/')}"[:80] if found else ""
    if what and what not in tried and len(tried) < MOST_TRIED:
        tried.append(what)


def _confine(ask: Asker) -> None:
    """A rank's clock is the judge's, and it starts no process: as in the simulator."""
    clock = SimpleNamespace(read_clock=ask.now, spend=lambda _, seconds: ask.compute(seconds))
    rank = SimpleNamespace(scheduler=clock)
    for owner, names, replacement in CONFINED:
        for name in filter(partial(hasattr, owner), names.split()):
            setattr(owner, name, partial(replacement, rank))


def _played(setup: dict[str, Any], play: dict[str, Any], ask: Asker) -> dict[str, Any]:
    """One play, to its end: what this rank has then, or what it raised."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(True)
    rank, world = play["rank"], play["world"]
    os.environ.update(torchrun_names(rank, world))
    os.environ["LOCAL_RANK"] = str(rank % 2)  # as on machines that have two ranks each
    groups = Groups(ask, rank, world, Buffers(*play["buffers"]))
    compat.enter_world(groups.world, {r: r for r in range(world)})
    context.install(ask)
    context.seed_rank(rank)
    try:
        function = _loaded(setup)
        calls = pickle.loads(bytes_of(play["calls"]))
        for own in (arg for args in calls for arg in args if isinstance(arg, Own)):
            own.ask = ask
        seen = [
            {"returned": encode(s.returned), "args": [*map(encode, s.args)], "notes": list(s.notes)}
            for s in call_all(function, calls, bool(play["ddp"]))
        ]
        return {"do": "done", "seen": seen}
    except Abandoned:
        return {"do": "over"}
    except BaseException as error:
        return _raised(error)
    finally:
        with suppress(Exception):
            compat.leave_world()


def _loaded(setup: dict[str, Any]) -> Callable:
    """A fresh function, with globals of its own. Of the cells that an answer runs with, only the
    statements that it needs are run."""
    space: dict[str, Any] = {
        "__name__": "answer",
        "torch": torch,
        "dist": dist,
        "Tensor": torch.Tensor,
        "Callable": Callable,
    }
    try:
        for cell in setup["cells"]:
            body = statements(cell["source"], cell["file"])
            tree = ast.Module([body[number] for number in cell["take"]], [])
            exec(compile(tree, cell["file"], "exec", dont_inherit=True), space)
        return space[setup["name"]]
    except Abandoned:
        raise
    except BaseException as error:
        raise AtImport(f"the answer's cell raises {type(error).__name__}: {error}") from error


def _raised(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)[:600]
    except Exception:
        text = ""
    lines = [plain_line(line) for line in stack_lines(error.__traceback__)][-8:]
    return {"do": "raised", "kind": type(error).__name__[:60], "text": text, "lines": lines}
