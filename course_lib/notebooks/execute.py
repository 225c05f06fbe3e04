"""Run a solved notebook from top to bottom, as if on a machine that nobody has configured."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nbformat import NotebookNode

from course_lib.notebooks.lesson import LessonError

CELL_SECONDS = 120


def execute(notebook: NotebookNode, root: Path, *, cell_seconds: float = CELL_SECONDS) -> None:
    """Fill in outputs; LessonError names the cell where one fails. ``root`` holds course_lib.

    The kernel works in an empty folder and sees no one's settings, so that what is stored does not
    depend on who builds.
    """
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ImportError:
        raise LessonError(
            "nbclient is missing, and lessons are executed with it: "
            "pip install -r requirements-dev.txt"
        ) from None

    with tempfile.TemporaryDirectory(prefix="lesson-") as folder:
        started: list[str] = []
        language = notebook.metadata.language_info.copy()
        client = NotebookClient(
            notebook,
            timeout=cell_seconds,
            kernel_name="python3",
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
            on_cell_execute=lambda cell, cell_index: started.append(cell.id),
        )
        try:
            client.execute(env=clean_environment(root, Path(folder)))
        except CellExecutionError as error:
            what = f"{error.ename}: {error.evalue}"
            raise LessonError(f"cell {started[-1]} fails: {what}") from None
        except CellTimeoutError:
            raise LessonError(f"cell {started[-1]} still runs after {cell_seconds:g} s") from None
        except DeadKernelError:
            raise LessonError(f"the kernel died in cell {started[-1]}") from None
    notebook.metadata.language_info = language  # the kernel's own names the builder's Python


def compare(
    notebook: Path, rules: Path, root: Path, folder: Path, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a solved notebook in an empty folder and compare all its outputs, as nbval does.

    ``rules`` is the sanitising file, ``root`` holds course_lib. Returns how pytest ended and what
    it said; raises TimeoutExpired after ``seconds``.
    """
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "--nbval"),
        *(f"--nbval-cell-timeout={CELL_SECONDS}", f"--nbval-sanitize-with={rules}"),
        *(f"--rootdir={folder}", shutil.copy(notebook, folder)),
    ]
    return subprocess.run(
        command, cwd=folder, env=clean_environment(root, folder), timeout=seconds, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def clean_environment(root: Path, folder: Path) -> dict[str, str]:
    """This process's environment, without a user's settings and without pytest's traces."""
    dropped = ("PYTEST_", "JUPYTER_", "MPLBACKEND")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    settings = str(folder / ".settings")
    return kept | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH")))),
        "IPYTHONDIR": settings,
        "JUPYTER_CONFIG_DIR": settings,
        "JUPYTER_PREFER_ENV_PATH": "1",
        "MATPLOTLIBRC": os.devnull,
    }
