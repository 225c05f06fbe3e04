"""The programs of docs/errors.md, and what that page says of them. tools/errors_gallery.py wrote
it, in a notebook. Here a cell is played in any process, and by any engine in place of ``run``: what
is told is the same, line by line.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

import course_lib
from course_lib import errors
from course_lib.user_code import show_lines
from programs import EVERYWHERE, PROCESSES, Engine, Program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
TEXT = PAGE.read_text(encoding="utf-8")
CHAPTERS = dict(re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", TEXT, re.M | re.S))
EXAMPLE = re.compile(r"^### (.+?)\n\n```python\n(.*?)^```\n\n```text\n(.*?)\n```", re.M | re.S)
CELL = "cell [1]"
NAMES = {name: getattr(course_lib, name) for name in course_lib.__all__}
NAMES |= {"torch": torch, "dist": dist, "__name__": "__main__"}

# What needs a process of its own, or is said of ``run``.
IN_PROCESSES = {
    "The result is too large",
    "Killed from outside",
    "A segmentation fault",
    "Leaving early, with exit code 0",
    "A loop without end",
    "The installed torch is too old",
    "A world too large for one machine",
    "A break-it cell in which nothing breaks",
}
SIMULATED = {"read before wait": ("simulate",), "written before wait": ("simulate", "nccl")}
# On NCCL a recv names its source, tags are ignored, and a wait is one of the stream.
NOT_ON_NCCL = "A receive from anybody, and nobody sends"
IN_OWN_WORDS = {
    "op: new_group by its members only": ("simulate", "nccl"),
    "Two groups, two orders": ("nccl",),
    "tag: a send and a recv that miss one another": ("nccl",),
    "never waited for": ("nccl",),
}

# In the soak these are jobs of torchrun, under watch.
WATCHED = (
    "One rank raises",
    "Killed from outside",
    "A segmentation fault",
    "Both send first",
    "A peer that has already returned",
    "Two groups, two orders",
    "op: different collectives",
    "shape: different lengths",
    "dtype: float32 against int32",
)
SCRIPT = """\
r'''told: {told}
ranks: {ranks}'''
import atexit, time, torch, torch.distributed as dist

def cause():
    print("cause", time.time(), flush=True)

def run(work, world_size=4):
    dist.init_process_group("gloo")
    dist.barrier()
    cause()
    work()
    atexit.register(cause)  # until then it may call

{code}"""


def play(code: str, engine: Engine) -> None:
    """Run a cell in which ``run`` and ``simulate`` are this engine."""
    show_lines(CELL, code)
    exec(compile(code, CELL, "exec"), NAMES | {"run": engine, "simulate": engine})


def script(title: str) -> str:
    """A job for torchrun, as tests/soak has them, with marks at the lines that have to be named."""
    code, text = EXAMPLES[title]
    lines = code.splitlines()
    for number in {int(n) - 1 for n in re.findall(r"cell \[1\], line (\d+)", text)}:
        lines[number] += "  # told"
    [ranks] = re.findall(r"world_size=(\d+)", code) or ["4"]
    told = re.escape(text.splitlines()[0])
    return SCRIPT.format(told=told, ranks=ranks, code="\n".join(lines))


def engines_of(title: str) -> tuple[str, ...]:
    if title in IN_PROCESSES:
        return PROCESSES
    return SIMULATED.get(title, EVERYWHERE[:2] if title == NOT_ON_NCCL else EVERYWHERE)


EXAMPLES = {title: (code, text) for title, code, text in EXAMPLE.findall(TEXT)}
PROGRAMS = [
    Program(
        title,
        getattr(errors, chapter),
        partial(play, code),
        says=(text,),
        engines=engines_of(title),
        in_own_words=IN_OWN_WORDS.get(title, ()),
    )
    for chapter, of_chapter in CHAPTERS.items()
    for title, code, text in EXAMPLE.findall(of_chapter)
]
