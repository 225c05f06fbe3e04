"""The process that ranks are forked from, and the notebook's end of it.

    notebook ──"a new world"──► fork server ──fork──► rank 0, rank 1, …
        │                           │
        └────── world's socket ─────┘      one per world

It imports torch once, later what ranks had to import, and else only forks: no autograd, no CUDA, no
threads of its own, so its children start in milliseconds and in a clean state (a fork of the
notebook itself would hang after the first large operator). A world lives exactly as long as its
socket: when the notebook closes it, or dies, the world's ranks and everything that they started are
killed. That is why it is not the one of ``multiprocessing``, which starts four ranks as fast,
within the noise, and does not end them: when the notebook is killed, its ranks and what they have
started live on.

The notebook sends the names of modules to import, and a world's socket. On that it sends one byte
with a rank's file descriptors (control, output, log, stack, store); back come ("pid", pid) and, in
time, ("exit", pid, code).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from course_lib.ranks.log import nameless_file
from course_lib.ranks.messages import framed

PRELOAD = ("torch", "torch.distributed", "numpy.random", "cloudpickle")
WORKER = "course_lib.ranks.worker"  # what ranks are: prepare() in here, main(fds, scratch) in each
FDS_PER_RANK = 5
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MOST_NAMES = 1 << 16  # bytes of names of modules


# ---- in the notebook ---------------------------------------------------------------------------


class ForkServer:
    """The notebook's end.

    Nobody waits for the process to come up. Requests lie in its socket until it reads them; if it
    dies instead, the sockets of the worlds that were asked for close.
    """

    def __init__(self, worker: str = WORKER, environ: Mapping[str, str] = os.environ) -> None:
        self.imports: set[str] = set()  # what ranks had to import: once for all ranks to come
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._complaints = nameless_file("complaints")
        self._give_back = weakref.finalize(self, os.close, self._complaints)
        path = os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), worker],
                env={**environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                start_new_session=True,
            )

    def open_world(self) -> socket.socket:
        """A socket on which ranks can be asked for; shutting it down ends them all."""
        here, there = socket.socketpair()
        # never empty: an empty message is what the end of the socket looks like
        names = " ".join(["torch", *self.imports]).encode()[:_MOST_NAMES]
        self.imports.clear()
        with there:
            socket.send_fds(self._control, [names], [there.fileno()])
        return here

    def last_complaint(self) -> str:
        """The last line that it wrote on its standard error, in brackets; "" once it was killed."""
        text = os.pread(self._complaints, 1 << 20, 0) if self._give_back.alive else b""
        return "".join(
            f" ({line})" for line in text.decode(errors="replace").strip().splitlines()[-1:]
        )

    def release(self) -> None:
        """Give back this process's end of its socket: it ends when nobody holds that."""
        self._control.close()

    def kill(self) -> None:
        """End one that has died, or does not answer and may never look at its socket."""
        self._process.kill()
        self._process.wait()
        self.release()
        self._give_back()  # a world that is done with may still know this server


# ---- in the fork server's process ----------------------------------------------------------------


class WorldProcesses:
    """The ranks that were started for one world's socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pids: set[int] = set()

    def kill(self) -> None:
        for pid in self.pids:
            kill_group(pid)

    def tell(self, message: tuple) -> None:
        try:
            self.sock.sendall(framed(message))
        except OSError:
            self.kill()  # the notebook has closed this world; its end is on the way


class Loop:
    """New worlds, new ranks, dead ranks."""

    def __init__(self, control: socket.socket, worker: str) -> None:
        self.control, self.worker = control, worker
        self.open = True
        self.worlds: list[WorldProcesses] = []
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, self._new_world)
        self._listen_for_deaths()

    def _listen_for_deaths(self) -> None:
        here, there = self._wakeup = socket.socketpair()
        for end in self._wakeup:
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        self.selector.register(here, selectors.EVENT_READ, self._deaths)

    def serve(self) -> None:
        """Serve until the notebook's process is gone."""
        while self.open:
            for key, _ in self.selector.select():
                key.data()
        for world in self.worlds:
            world.kill()
        self._kill_strays()

    def _new_world(self) -> None:
        names, fds, _, _ = socket.recv_fds(self.control, _MOST_NAMES, 1)
        if not names:
            self.open = False
            return
        import_modules(names.decode().split())
        world = WorldProcesses(socket.socket(fileno=fds[0]))
        self.worlds.append(world)
        self.selector.register(world.sock, selectors.EVENT_READ, lambda: self._new_rank(world))

    def _new_rank(self, world: WorldProcesses) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(world.sock, 1, FDS_PER_RANK)
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            self._end(world)
            return
        pid = fork_rank(fds, self.worker)
        for fd in fds:
            os.close(fd)
        world.pids.add(pid)
        world.tell(("pid", pid))

    def _end(self, world: WorldProcesses) -> None:
        self.selector.unregister(world.sock)
        world.sock.close()
        world.kill()
        if not world.pids:
            self.worlds.remove(world)

    def _deaths(self) -> None:
        self._wakeup[0].recv(4096)
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if dead is None:
                break
            kill_group(dead.si_pid)  # what it started goes with it; its number is still its own
            _, status = os.waitpid(dead.si_pid, 0)
            shutil.rmtree(scratch_folder(dead.si_pid), ignore_errors=True)
            self._died(dead.si_pid, os.waitstatus_to_exitcode(status))
        self._kill_strays()

    def _died(self, pid: int, code: int) -> None:
        for world in self.worlds:
            if pid in world.pids:
                world.pids.remove(pid)
                if world.sock.fileno() >= 0:
                    world.tell(("exit", pid, code))
                elif not world.pids:
                    self.worlds.remove(world)
                return

    def _kill_strays(self) -> None:
        """Descendants that left their group come to us when their parent dies."""
        ranks = {pid for world in self.worlds for pid in world.pids}
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            for pid in map(int, children.read().split()):
                if pid not in ranks:
                    kill_group(pid)


def import_modules(names: Iterable[str]) -> None:
    """Import what is not there yet, for every rank that is forked from now on."""
    for name in (new := [name for name in names if name not in sys.modules]):
        with contextlib.suppress(Exception):  # a rank that needs it will say so
            importlib.import_module(name)
    if new:
        gc.collect()
        gc.freeze()  # a rank's garbage collector shall not copy what it only inherits


def kill_group(pid: int) -> None:
    """Kill a child (alive, or not yet reaped) and every process that belongs to its group."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):  # it has not made its group yet
            kill(pid, signal.SIGKILL)


def scratch_folder(rank_pid: int) -> str:
    """Where a rank's ``multiprocessing`` keeps its sockets. Ranks, and what they have started, end
    by being killed, and then nobody tidies up but the fork server, which knows this name.
    """
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"course_lib-{os.getuid()}-{rank_pid}")


def fork_rank(fds: Sequence[int], worker: str) -> int:
    """Start a rank as a copy of this process."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not to outlive the fork server
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        close_all_but(fds)
        sys.modules[worker].main(fds, scratch_folder(os.getpid()))
    finally:
        os._exit(1)


def close_all_but(keep: Sequence[int]) -> None:
    """Close every file that a fork has copied: a rank must not hold its siblings' sockets."""
    for before, after in pairwise([2, *sorted(keep), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(before + 1, after)


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
    from course_lib.ranks import forkserver  # as everybody else knows it

    forkserver.main(int(sys.argv[1]), sys.argv[2])
