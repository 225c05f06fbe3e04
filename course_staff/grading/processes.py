"""The processes of one answer, as the judge sees them: one slot for each rank, started when needed.

    grade ── RankServer ──► fork server ──fork──► keeper ──► rank     torch is imported once, before
      └─── pytest ── kernel: judge ─── Slot ───────────────────┘      any student's code

One fork server serves all judges of a grading run: each asks at its door for a socket, on which a
rank can be ordered, and closes that to end it.

A slot is used for one play after another as long as it behaves. One that does not come back, says
what no rank says, or has to be given up in the middle is ended with everything that it has started,
and the next play gets a new one.
"""

from __future__ import annotations

import math
import os
import pickle
import secrets
import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import cached_property
from typing import Any

from course_lib.launching.forkserver import ForkServer
from course_staff.grading.walls import UNDEFENDED, WITHOUT, Limits
from course_staff.grading.wire import Ended, Malformed, Talk

VARIABLE = "COURSE_GRADE_DOOR"  # where kernels find the fork server of their run
# What a Python needs of this process's environment. A rank can read all that it began with.
_NEEDED = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", WITHOUT)
TICK = 0.1  # seconds after which whoever waits for a rank looks at the time
START = 20.0  # seconds in which a slot has to be ready, on a busy machine, too
_CREDENTIALS = struct.Struct("3i")  # of a caller: process, user, group
REAPED = 0.5  # seconds in which the fork server has noticed that a rank has ended
HOME = 2.0  # seconds in which a rank has to come back once it was told that the play is over


class RankServer(ExitStack):
    """The fork server of a grading run, from when it is needed to the end of the with-block, and
    its door: an abstract socket, which is in no file system and ends with this process."""

    def __init__(self) -> None:
        super().__init__()
        self._starting = threading.Lock()

    @property
    def address(self) -> str:
        """Where judges call; whoever asks first waits until ranks can be had."""
        with self._starting:
            return self._address

    @cached_property
    def server(self) -> ForkServer:
        environ = {name: os.environ[name] for name in _NEEDED if name in os.environ}
        started = ForkServer("course_staff.grading.walled_rank", environ | {"OMP_NUM_THREADS": "1"})
        self.callback(started.release)
        return started

    @cached_property
    def _address(self) -> str:
        address = f"course-grade-{secrets.token_hex(8)}"
        door = self.enter_context(socket.socket(socket.AF_UNIX))
        door.bind(f"\0{address}")
        door.listen(64)
        self.callback(door.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=self._answer, args=[door], daemon=True).start()
        life, talk = start_rank(address)
        with life, talk:  # it says that it has forked; from now on that takes milliseconds
            if not life.recv(1):
                raise RuntimeError(f"no process that starts ranks{self.server.last_complaint()}")
        return address

    def _answer(self, door: socket.socket) -> None:
        while True:
            try:
                caller, _ = door.accept()
            except OSError:  # it is closed
                return
            # whoever called may be gone by now, and the fork server, too
            with caller, suppress(OSError):
                if _user_of(caller) != os.geteuid():
                    continue
                with self.server.open_world() as world:
                    socket.send_fds(caller, [b"."], [world.fileno()])


def _user_of(caller: socket.socket) -> int:
    credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def call(address: str) -> socket.socket:
    """A socket to a grading run's door; OSError where the run is gone, and its ranks with it."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.connect(f"\0{address}")
    except OSError:
        door.close()
        raise
    return door


def start_rank(address: str) -> tuple[socket.socket, socket.socket]:
    """A new process behind walls: the socket that it lives as long as, and that on which it talks.
    It builds its walls when it is told its limits."""
    here, there = socket.socketpair()
    with there, call(address) as door:
        _, fds, _, _ = socket.recv_fds(door, 1, 1)
        if not fds:
            raise Ended("the fork server is gone")
        life = socket.socket(fileno=fds[0])
        socket.send_fds(life, [b"."], [there.fileno()])
    return life, here


class Slot:
    """One rank's process."""

    def __init__(self, address: str, setup: dict[str, Any]) -> None:
        self._life, sock = start_rank(address)
        sock.settimeout(TICK)
        self.talk = Talk(sock)
        self.talk.until = time.monotonic() + START
        self.playing = False
        self.why = ""  # it ended, in words for the instructor
        self.tried: set[str] = set()  # what the answer reached for beyond its walls, as it says
        try:
            self.talk.send(setup)
            self.walls = {str(w) for w in self.talk.receive()["walls"]}
        except (Ended, Malformed, TimeoutError, KeyError, TypeError) as error:
            self.end(f"it did not start ({type(error).__name__})")
            raise Ended(self.why) from None

    def start(self, play: dict[str, Any]) -> None:
        """Begin a play. From here on it is the simulation that limits the time. One simulation
        may play a case more than once, each time from where the last one was given up."""
        if not self.home():
            raise Ended(self.why)
        self.talk.until = math.inf
        self.playing = True
        self.talk.send(play)

    def home(self) -> bool:
        """Whether it can be used again. One in the middle of a play, which the simulation has given
        up, is told so, and may go on asking for a while."""
        if self.playing and not self.why:
            self.talk.until = time.monotonic() + HOME
            try:
                self.talk.send({"over": 1})
                while self.talk.receive().get("do") not in ("over", "done", "raised"):
                    self.talk.send({"over": 1})
                self.playing = False
            except (Ended, Malformed, TimeoutError):
                self.end("it did not come back")
        return not self.why

    def end(self, why: str = "") -> None:
        """End the process, which the fork server does when it sees its socket close."""
        if not self.why:
            self.why = why or _in_words(self._exit_code())
            self._life.close()
            self.talk.sock.close()

    def note_tried(self, said: Any) -> None:
        for text in said if isinstance(said, list) else []:
            if isinstance(text, str) and len(text) <= 80 and text.isprintable():
                self.tried.add(text)

    def _exit_code(self) -> int | None:
        """What the fork server says of it, once it has reaped it."""
        self._life.settimeout(REAPED)
        with suppress(OSError):  # it does not say so in time
            while message := self._life.recv(1 << 10):
                what, _, *code = pickle.loads(message)
                if what == "exit":
                    return int(*code)
        return None


def _in_words(code: int | None) -> str:
    if code is None:
        return "it ended"
    if code <= 128:
        return f"it ended with exit code {code}"
    return {
        24: "it used more processor time than allowed",
        25: "it wrote a larger file than allowed",
        6: "it was aborted, in compiled code (signal 6)",
        11: "it crashed, in compiled code (signal 11)",
    }.get(code - 128, f"signal {code - 128} ended it")


class Runner:
    """All slots of one answer, as long as the with-block lasts."""

    def __init__(self, address: str, limits: Limits, setup: dict[str, Any]) -> None:
        self._address = address
        self._setup = setup | {"limits": asdict(limits)}
        self._slots: list[Slot] = []
        self.ended: list[str] = []  # why slots were given up
        self.walls = set(UNDEFENDED)  # that stand around all of them
        self.tried: set[str] = set()  # beyond their walls

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self._slots:
            slot.end("it is not needed any more")

    def slots(self, world: int) -> list[Slot]:
        """As many slots as this, all of them ready."""
        while len(self._slots) < world:
            fresh = Slot(self._address, self._setup)
            self.walls &= fresh.walls
            fresh.tried = self.tried
            self._slots.append(fresh)
        return self._slots[:world]

    def end_lost(self) -> list[str]:
        """After a play: give up the slots that do not come back; returns why, for each of them."""
        gone = [slot.why for slot in self._slots if not slot.home()]
        self.ended += gone
        self._slots = [slot for slot in self._slots if not slot.why]
        return gone
