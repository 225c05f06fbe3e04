"""One rank's way to its place: what the fork server of a grading starts.

    fork server ──fork──► keeper ──fork──► rank
                             │               builds its walls, then serves the judge: see rank.py
                             leaves the system's namespaces, waits, and ends as its rank did

The fork server and the keepers run no student's code. It ends a keeper when the judge closes its
socket, and then the rank, which was the first process of its own world, and all that came of it.
"""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch

from course_lib.grading import rank, walls
from course_lib.grading.frames import Talk
from course_lib.grading.walls import Limits

CHECKS = Path(__file__).resolve().parents[1] / "checks"
# Modules of what ranks are given. The lessons stay out of a rank's memory and of its files: the
# right function of an exercise would be an answer to it. The first optimizer imports the third of
# these, and what loads data the last.
GIVEN = ("course_lib.checks.models", "course_lib.checks.watched", "torch._dynamo",
         "torchvision.datasets")  # fmt: skip
_leave = os._exit  # the answer's own is patched


def hidden() -> list[str]:
    """What of this package no rank may read: the grading, and what is expected of answers."""
    own = [Path(__file__).resolve().parent, CHECKS / "__pycache__", CHECKS / "formulas.py"]
    return [str(p) for p in [*own, *CHECKS.glob("lesson_*.py")]]


def prepare() -> None:
    """In the fork server, before any rank."""
    for name in GIVEN:
        importlib.import_module(name)
    torch.set_num_threads(1)
    gc.collect()


def main(fds: Sequence[int], scratch: str) -> NoReturn:
    """The life of a keeper."""
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
    standing = walls.build(Limits(**setup["limits"]), outer, scratch, hidden())
    walls.end_with_parent(signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    rank.serve(talk, setup, standing)
