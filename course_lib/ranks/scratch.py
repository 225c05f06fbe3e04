"""Where a rank's own processes meet: the folder in which ``multiprocessing`` keeps its sockets.

Ranks, and what they have started, end by being killed, and then nobody tidies up. So the folder
has a name that the fork server knows, and it removes what is left.
"""

from __future__ import annotations

import os
import shutil
from multiprocessing import process, util


def folder(pid: int) -> str:
    """The folder of the rank that has this process number, as long as TMPDIR is what it was when
    the fork server began.
    """
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"course_lib-{os.getuid()}-rank-{pid}")


def keep_in(path: str) -> None:
    """Have this process and its children keep such files there; made when it is first needed."""

    def get_temp_dir() -> str:
        os.makedirs(path, mode=0o700, exist_ok=True)
        process.current_process()._config["tempdir"] = path  # type: ignore[attr-defined]
        return path

    util.get_temp_dir = get_temp_dir


def clear(pid: int) -> None:
    """Remove what a rank that is gone has left behind."""
    shutil.rmtree(folder(pid), ignore_errors=True)
