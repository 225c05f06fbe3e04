"""Run a solved notebook as if on a machine that nobody has configured, and store of its outputs
nothing of the machine, nothing of the moment, nothing oversized.

The rules for text are those of notebooks/sanitize.cfg, which nbval reads, too. Its sections named
[written …] are applied here; the others only where nbval compares.
"""

from __future__ import annotations

import configparser
import os
import re
import tempfile
from functools import partial
from pathlib import Path

from nbformat import NotebookNode
from traitlets.config import Config

from course_check.copies.folders import LessonError

CELL_SECONDS = 120
_STORED = ("text/plain", "text/markdown", "text/latex", "text/html", "image/svg+xml", "image/png")

Rules = list[tuple[re.Pattern[str], str]]


def execute(notebook: NotebookNode, root: Path, *, cell_seconds: float = CELL_SECONDS) -> None:
    """Fill in outputs; LessonError names the cell where one fails. ``root`` holds course_lib.

    The kernel works in an empty folder and sees no one's settings, so that what is stored does not
    depend on who builds.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    temporary = partial(tempfile.TemporaryDirectory, prefix="lesson-")
    with temporary() as folder, temporary() as sockets:
        begun: list[str] = []
        name, language = notebook.metadata.course.lesson, notebook.metadata.language_info.copy()
        client = NotebookClient(
            notebook,
            config=listening_in(sockets),
            timeout=cell_seconds,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,  # where a kernel cuts them is chance
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
            on_cell_execute=lambda cell, cell_index: begun.append(cell.id),
        )
        try:
            client.execute(env=clean_environment(root, Path(folder)))
        except CellExecutionError as error:
            raise LessonError(f"{name}, cell {begun[-1]}: {error.ename}: {error.evalue}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            what = str(error).strip().splitlines()[0]
            raise LessonError(f"{name}, cell {begun[-1]}: {what}") from None
    notebook.metadata.language_info = language  # the kernel's own names the builder's Python


def listening_in(folder: str | Path) -> Config:
    """Settings of one kernel's manager: it listens in this folder, whose path has to be short.

    Of the ports that jupyter_client chooses before a kernel has started, another process may have
    one by then.
    """
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})


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


def read_rules(path: Path) -> Rules:
    """The rules of ``path`` that apply when outputs are written."""
    config = configparser.RawConfigParser(delimiters=(":",), comment_prefixes=("#",))
    config.read_string(path.read_text(encoding="utf-8"), source=path.name)
    written = [name for name in config.sections() if name.startswith("written")]
    return [(re.compile(config[name]["regex"]), config[name]["replace"]) for name in written]


def clean_text(text: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def tidy(notebook: NotebookNode, rules: Rules) -> None:
    """Clean every output of a notebook that ran without an error, in place."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for output in cell.outputs:
                _clean(output, rules)


def _clean(output: NotebookNode, rules: Rules) -> None:
    if output.output_type == "stream":
        output.text = clean_text(output.text, rules)
        return
    output.metadata = {k: v for k, v in output.metadata.items() if k in _STORED}  # display sizes
    output.data = {
        kind: value if kind == "image/png" else clean_text(value, rules)
        for kind, value in output.data.items()
        if kind in _STORED
    }
