"""The notebook's end of the fork server, and the place where ranks find one another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import torch.distributed as dist

from course_lib.errors import CourseError
from course_lib.ranks import job, wire
from course_lib.ranks.log import nameless_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Server:
    """Starts the fork server when it is first needed, and opens worlds on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._door: socket.socket | None = None

    def open_world(self) -> socket.socket:
        """A socket on which ranks can be asked for; shutting it down ends them all."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            here, there = socket.socketpair()
            with there:
                try:
                    self._hand_over(there)
                except BrokenPipeError:  # it has died since we asked
                    self._start()
                    self._hand_over(there)
        return here

    def _hand_over(self, end: socket.socket) -> None:
        assert self._door is not None
        socket.send_fds(self._door, [b"w"], [end.fileno()])

    def _start(self) -> None:
        self.forget()
        usual = "fork" if sys.platform == "linux" else "spawn"
        method = os.environ.get("COURSE_LIB_START") or usual
        here, there = socket.socketpair()
        command = [sys.executable, "-P", "-m", "course_lib.ranks.forkserver"]
        path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        complaints = nameless_file("complaints")
        try:
            self._process = subprocess.Popen(
                [*command, method, str(there.fileno())],
                env=os.environ | {"PYTHONPATH": path},
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                start_new_session=True,
            )
            there.close()
            wire.receive(here)
        except EOFError:
            size = os.fstat(complaints).st_size
            last = os.pread(complaints, size, 0).decode(errors="replace").strip().splitlines()
            raise CourseError(f"the process that starts ranks did not start: {last[-1:]}") from None
        finally:
            os.close(complaints)
        self._door = here

    def forget(self) -> None:
        """Drop the server: it ends by itself when nobody holds its door."""
        if self._door is not None:
            self._door.close()
        self._door = self._process = None


class Store:
    """Where ranks find one another.

    A ready-made world meets in a file without a name, which takes no port and asks no name
    server. A function that calls ``init_process_group`` itself is given what torchrun would give
    it: a TCP store that is already hosted, on a port that the system chose.
    """

    def __init__(self, ready_made: bool) -> None:
        self.fd = nameless_file("store")
        self.port = 0
        self._tcp: dist.TCPStore | None = None
        if not (ready_made and sys.platform == "linux"):
            with job.short_lookups():
                self._tcp = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            self.port = self._tcp.port

    def close(self) -> None:
        """Give back the file, and the port if there is one."""
        os.close(self.fd)
        self._tcp = None
