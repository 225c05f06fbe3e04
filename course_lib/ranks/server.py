"""The notebook's end of the fork server, and the place where ranks find one another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import weakref

import torch.distributed as dist

from course_lib.ranks import job
from course_lib.ranks.log import nameless_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Server:
    """A fork server's process.

    Nobody waits for it to come up. Requests lie in its socket until it reads them; if it dies
    instead, the sockets of the worlds that were asked for close.
    """

    def __init__(self) -> None:
        door, theirs = socket.socketpair()
        self._complaints = nameless_file("complaints")
        self._give_back = weakref.finalize(self, os.close, self._complaints)
        path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "course_lib.ranks.forkserver", str(theirs.fileno())],
                env=os.environ | {"PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                start_new_session=True,
            )
        self._door = door

    def open_world(self) -> socket.socket:
        """A socket on which ranks can be asked for; shutting it down ends them all."""
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self._door, [b"w"], [there.fileno()])
        return here

    def last_words(self) -> str:
        """The last line that it wrote on its standard error, in brackets; "" once it was killed."""
        text = os.pread(self._complaints, 1 << 20, 0) if self._give_back.alive else b""
        return "".join(
            f" ({line})" for line in text.decode(errors="replace").strip().splitlines()[-1:]
        )

    def release(self) -> None:
        """Give back this process's end of its door: it ends when nobody holds that."""
        self._door.close()

    def kill(self) -> None:
        """End one that has died, or does not answer and may never look at its door."""
        self._process.kill()
        self._process.wait()
        self.release()
        self._give_back()  # a world that is done with may still know this server


class Store:
    """Where ranks find one another.

    A ready-made world meets in a file without a name, which takes no port and asks no name
    server. A function that calls ``init_process_group`` itself is given what torchrun would give
    it: a TCP store that is already hosted, on a port that the system chose.
    """

    def __init__(self, ready_made: bool) -> None:
        self.fd, self.port = nameless_file("store"), 0
        self._tcp: dist.TCPStore | None = None
        if not ready_made:
            with job.short_lookups():
                self._tcp = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            self.port = self._tcp.port

    def close(self) -> None:
        """Give back the file, and the port if there is one."""
        os.close(self.fd)
        self._tcp = None
