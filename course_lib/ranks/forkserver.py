"""The process that ranks are forked from.

    notebook ──"a new world"──► forkserver ──fork──► rank 0, rank 1, …
        │                           │
        └────── world socket ───────┘      one per world

It imports torch once and then only forks: no autograd, no CUDA, no threads of its own, so its
children start in milliseconds and in a clean state (a fork of the notebook itself would hang
after the first ``backward()``). A world lives exactly as long as its socket: when the notebook
closes it, or dies, the world's ranks and everything that they started are killed.

Protocol on a world's socket: the notebook sends one byte with the rank's file descriptors
(control, output, log, stack, store); back come ("pid", pid) and, in time, ("exit", pid, code).
A rank that had to import more of torch says so here when its function has ended, and what it names
is imported before the next rank is forked: once for all ranks to come.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from itertools import pairwise

from course_lib.ranks import scratch, wire

PRELOAD = ("torch", "torch.distributed", "numpy.random", "cloudpickle", "course_lib.ranks.worker")
FDS_PER_RANK = 5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class World:
    """The ranks that were started for one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pids: set[int] = set()

    def kill(self) -> None:
        for pid in self.pids:
            kill_group(pid)


def kill_group(pid: int) -> None:
    """Kill a child (alive, or not yet reaped) and every process that belongs to its group."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has not made its group yet


class Server:
    """The loop: new worlds, new ranks, dead ranks."""

    def __init__(self, door: socket.socket) -> None:
        self.door = door
        self.imports, self.ranks_imports = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.worlds: list[World] = []
        self.selector = selectors.DefaultSelector()
        self.selector.register(door, selectors.EVENT_READ, self._new_world)
        self._listen_for_deaths()

    def _listen_for_deaths(self) -> None:
        here, there = socket.socketpair()
        for end in (here, there):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        self._wakeup = (here, there)
        self.selector.register(here, selectors.EVENT_READ, self._deaths)

    def serve(self) -> None:
        """Serve until the notebook's process is gone."""
        self.open = True
        while self.open:
            for key, _ in self.selector.select():
                key.data()
        for world in self.worlds:
            world.kill()
        self._kill_strays()

    def _import_what_ranks_did(self) -> None:
        names: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                names += self.imports.recv(1 << 20, socket.MSG_DONTWAIT).decode().split()
        if new := [name for name in names if name not in sys.modules]:
            for name in new:
                with contextlib.suppress(Exception):  # a rank that needs it will say so
                    importlib.import_module(name)
            gc.collect()
            gc.freeze()  # a rank's garbage collector shall not copy what it only inherits

    def _new_world(self) -> None:
        data, fds, _, _ = socket.recv_fds(self.door, 1, 1)
        if not data:
            self.open = False
            return
        world = World(socket.socket(fileno=fds[0]))
        self.worlds.append(world)
        self.selector.register(world.sock, selectors.EVENT_READ, lambda: self._request(world))

    def _request(self, world: World) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(world.sock, 1, FDS_PER_RANK)
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            self._end(world)
            return
        self._import_what_ranks_did()
        pid = fork_rank([*fds, self.ranks_imports.fileno()])
        for fd in fds:
            os.close(fd)
        world.pids.add(pid)
        self._tell(world, ("pid", pid))

    def _end(self, world: World) -> None:
        self.selector.unregister(world.sock)
        world.sock.close()
        world.kill()
        if not world.pids:
            self.worlds.remove(world)

    def _tell(self, world: World, message: tuple) -> None:
        try:
            wire.send(world.sock, message)
        except OSError:
            world.kill()  # the notebook has closed this world; its end is on the way

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
            scratch.clear(dead.si_pid)
            self._died(dead.si_pid, os.waitstatus_to_exitcode(status))
        self._kill_strays()

    def _died(self, pid: int, code: int) -> None:
        for world in self.worlds:
            if pid in world.pids:
                world.pids.remove(pid)
                if world.sock.fileno() >= 0:
                    self._tell(world, ("exit", pid, code))
                elif not world.pids:
                    self.worlds.remove(world)
                return

    def _kill_strays(self) -> None:
        """Descendants that left their group come to us when their parent dies."""
        ranks = {pid for world in self.worlds for pid in world.pids}
        for pid in _children():
            if pid not in ranks:
                kill_group(pid)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return []  # a kernel that keeps no such list: what leaves its group there is on its own


def fork_rank(fds: Sequence[int]) -> int:
    """Start a rank as a copy of this process."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not to outlive the fork server
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        close_all_but(fds)
        from course_lib.ranks import worker

        worker.main(fds)
    finally:
        os._exit(1)


def close_all_but(keep: Sequence[int]) -> None:
    """Close every file that a fork has copied: a rank must not hold its siblings' sockets."""
    for before, after in pairwise([2, *sorted(keep), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(before + 1, after)


def main(door_fd: int) -> None:
    """Serve the notebook at the other end of this socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans come to us
    for name in PRELOAD:
        importlib.import_module(name)
    from course_lib.ranks import wrappers

    wrappers.install()  # every rank needs them, and a fork inherits them
    gc.freeze()
    Server(socket.socket(fileno=door_fd)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
