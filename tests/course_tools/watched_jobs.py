"""Jobs for the tests of watch: ranks that are started by hand, as torchrun starts them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclass
class Started:
    """A job's ranks: the processes, where they print, and the folder of their logs."""

    ranks: list[subprocess.Popen]
    folder: Path
    ends: list[tuple[str, str]] = field(default_factory=list)

    def finish(self, seconds: float = 60.0) -> Started:
        """Wait for all; whoever is left when one has failed is ended, as torchrun does."""
        try:
            for rank in self.ranks:
                out, err = rank.communicate(timeout=seconds)
                self.ends.append((out, err))
        finally:
            self.kill()
        return self

    def kill(self) -> None:
        for rank in self.ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()

    @property
    def codes(self) -> list[int | None]:
        return [rank.returncode for rank in self.ranks]

    @property
    def said(self) -> str:
        """What was said of the job, without what the ranks printed."""
        err = self.ends[0][1]
        return err[err.find("course_lib.watch") :] if "course_lib.watch" in err else ""


def start(folder: Path, source: str, *words: str, size: int = 2, options=(), env=None) -> Started:
    """Start a script on so many ranks under watch."""
    script, logs = folder / "train.py", folder / "logs"
    script.write_text(textwrap.dedent(source))
    base = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    base |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    base |= {"PYTHONPATH": str(ROOT), "COURSE_LIB_LOGS": str(logs)} | (env or {})
    command = [sys.executable, "-u", "-m", "course_lib.watch", *options]
    ranks = [
        subprocess.Popen(
            [*command, str(script), *words],
            env=base | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # a shell starts what runs in the background with interrupts ignored
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        for rank in range(size)
    ]
    return Started(ranks, logs / "restart-0")
