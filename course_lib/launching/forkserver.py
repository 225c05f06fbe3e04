"""The process that ranks are forked from, and the notebook's end of it.

    notebook ──"a new world"──► fork server ──fork──► rank 0, rank 1, …
        │                           │
        └────── world's socket ─────┘      one per world

It imports torch once, and later what ranks had to import. Otherwise it only forks: it has no
autograd, no CUDA and no threads of its own, so its children start in milliseconds and in a clean
state. (A fork of the notebook itself would hang after the first large operator.) A world lives
exactly as long as its socket: when the notebook closes it, or dies, the world's ranks and
everything that they have started are killed. The fork server of ``multiprocessing`` starts four
ranks equally fast, but does not end them: they live on when the notebook is killed.

The notebook sends the names of modules to import, and a world's socket. On that socket it sends a
rank's number, as one byte, with the rank's file descriptors (control, output, log, stack, store,
orders). Back come ("pid", pid) and, when the rank has ended, ("exit", pid, code).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from course_lib.recording.log import nameless_file

PRELOAD = ("torch", "torch.distributed", "numpy.random", "cloudpickle")
# What ranks are: prepare() in here, main(number, fds, scratch) in each.
WORKER = "course_lib.launching.worker"
FDS_PER_RANK = 6
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MOST_NAMES = 1 << 16  # bytes of names of modules


# ---- in the notebook ---------------------------------------------------------------------------


class ForkServer:
    """The notebook's end.

    Nobody waits for the process to start. Requests lie in its socket until it reads them; if it
    dies first, the sockets of the worlds that were asked for close.
    """

    def __init__(self, worker: str = WORKER, environ: Mapping[str, str] = os.environ) -> None:
        # What ranks had to import, in their order; it is imported once for all ranks to come.
        self.imports: dict[str, None] = {}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._complaints = os.fdopen(nameless_file("complaints"), errors="replace")
        path = os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        with theirs:
            command = [sys.executable, "-P", __file__, str(theirs.fileno()), worker]
            none = subprocess.DEVNULL
            files = {"stdin": none, "stdout": none, "stderr": self._complaints}
            kept: dict[str, Any] = {**files, "pass_fds": [theirs.fileno()]}
            environ = {**environ, "PYTHONPATH": path}
            self._process = subprocess.Popen(command, env=environ, start_new_session=True, **kept)

    def open_world(self) -> socket.socket:
        """A socket on which ranks can be asked for; shutting it down ends them all."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # never empty: an empty message is what the end of the socket looks like
        names = " ".join(["torch", *self.imports]).encode()[:_MOST_NAMES]
        self.imports.clear()
        with there:
            socket.send_fds(self._control, [names], [there.fileno()])
        return here

    def last_complaint(self) -> str:
        """The last line of its standard error, in brackets; "" once it was killed."""
        if self._complaints.closed:
            return ""
        self._complaints.seek(0)
        return "".join(f" ({line.strip()})" for line in self._complaints.readlines()[-1:])

    @property
    def has_died(self) -> bool:
        return self._process.poll() is not None

    def release(self) -> None:
        """Close this process's end of its socket. It ends once no process holds that any more."""
        self._control.close()

    def kill(self) -> None:
        """End it although it may never look at its socket: it has died, or does not answer."""
        self._process.kill()
        self._process.wait()
        self.release()
        self._complaints.close()  # a world that is done with may still know this server


# ---- in the fork server's process ----------------------------------------------------------------


class Loop:
    """Starts ranks when a world's socket asks for them, and reaps those that have died."""

    def __init__(self, control: socket.socket, worker: str) -> None:
        self.control, self.worker = control, worker
        self.open = True
        self.ranks: dict[int, socket.socket] = {}  # process id → its world's socket
        self.selector = selectors.DefaultSelector()
        self._watch(control, self._open_world)

    def _watch(self, file: socket.socket | int, react: Callable[[], None]) -> None:
        self.selector.register(file, selectors.EVENT_READ, react)

    def serve(self) -> None:
        """Serve until the notebook's process is gone."""
        while self.open:
            # The end of a world goes first, because a new one may take many imports.
            events = self.selector.select()
            for key, _ in sorted(events, key=lambda event: event[0].fileobj is self.control):
                key.data()
        for pid in self.ranks:
            end_rank(pid)
        self.ranks.clear()
        self._end_strays()

    def _open_world(self) -> None:
        """The notebook wants a world: import what its ranks need, and listen to its socket."""
        names, fds, _, _ = socket.recv_fds(self.control, _MOST_NAMES, 1)
        if not names:
            self.open = False
            return
        import_modules(names.decode().split())
        world = socket.socket(fileno=fds[0])
        self._watch(world, partial(self._start_rank, world))

    def _start_rank(self, world: socket.socket) -> None:
        """A world wants one more rank, or has been closed."""
        try:
            data, fds, _, _ = socket.recv_fds(world, 1, FDS_PER_RANK)
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            self._end_world(world)
            return
        pid = fork_rank(data[0], fds, self.worker)
        for fd in fds:
            os.close(fd)
        self.ranks[pid] = world
        death = os.pidfd_open(pid)
        self._watch(death, partial(self._reap, pid, death))
        tell(world, ("pid", pid))

    def _end_world(self, world: socket.socket) -> None:
        self.selector.unregister(world)
        world.close()
        for pid in [pid for pid, its_world in self.ranks.items() if its_world is world]:
            kill_group(pid)

    def _reap(self, pid: int, death: int) -> None:
        """A rank has died: end what it has left behind, and tell its world."""
        self.selector.unregister(death)
        os.close(death)
        code = end_rank(pid)
        world = self.ranks.pop(pid)
        self._end_strays()
        tell(world, ("exit", pid, code))

    def _end_strays(self) -> None:
        """Kill those who left a rank's group: they become our children once their parent dies."""
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        while strays := {*map(int, children.read_text().split())} - self.ranks.keys():
            for pid in strays:
                end_rank(pid)


def tell(world: socket.socket, message: tuple) -> None:
    """Send a message to the notebook, if it still listens."""
    with contextlib.suppress(OSError):  # the notebook has closed it; its end is on the way
        world.send(pickle.dumps(message))


def import_modules(names: Iterable[str]) -> None:
    """Import what is not there yet, for every rank that is forked from now on."""
    for name in (new := [name for name in names if name not in sys.modules]):
        with contextlib.suppress(Exception):  # a rank that needs it will say so
            importlib.import_module(name)
    if new:
        gc.collect()
        gc.freeze()  # a rank's garbage collector shall not copy what it only inherits


def kill_group(pid: int) -> None:
    """Kill a child, alive or not yet reaped, and every process of its group."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):  # it has not made its group yet
            kill(pid, signal.SIGKILL)


def end_rank(pid: int) -> int:
    """Kill a child and its group, reap it, and remove what it has left in files; returns its exit
    code, or minus its signal.
    """
    kill_group(pid)  # before it is reaped: its number is still its own
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shutil.rmtree(scratch_folder(pid), ignore_errors=True)
    return code


def scratch_folder(rank_pid: int) -> str:
    """Where a rank's ``multiprocessing`` keeps its sockets. The fork server has to know the name,
    because ranks and what they have started are killed and cannot tidy up.
    """
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"course_lib-{os.getuid()}-{rank_pid}")


def fork_rank(number: int, fds: Sequence[int], worker: str) -> int:
    """Start a rank as a copy of this process; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not to outlive the fork server
    try:
        # It must not hold its siblings' sockets: close every file that a fork has copied.
        for before, after in pairwise([2, *sorted(fds), os.sysconf("SC_OPEN_MAX")]):
            os.closerange(before + 1, after)
        sys.modules[worker].main(number, fds, scratch_folder(os.getpid()))
    finally:
        os._exit(1)


def main(control_fd: int, worker: str) -> None:
    """Serve the notebook at the other end of this socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans come to us
    for name in PRELOAD:
        importlib.import_module(name)
    importlib.import_module(worker).prepare()  # every rank needs it, and a fork inherits it
    gc.freeze()
    Loop(socket.socket(fileno=control_fd), worker).serve()


if __name__ == "__main__":
    from course_lib.launching import forkserver  # as everybody else knows it

    forkserver.main(int(sys.argv[1]), sys.argv[2])
