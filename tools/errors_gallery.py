"""Provoke every error of the course for real, and write docs/errors.md with what was said.

    python tools/errors_gallery.py                      write the page
    python tools/errors_gallery.py --check              regenerate, compare, change nothing
    python tools/errors_gallery.py --check --only 3     compare only every third example

Each example runs as a cell of a notebook would, in IPython, and the text is what the notebook
shows: nothing on the page was typed. Every text is the same each time, which is a promise of the
library as much as of this page.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"


class Example(NamedTuple):
    """One cell that goes wrong; what the error means, what to do, and who explains it."""

    title: str
    code: str
    means: str
    todo: str
    lesson: str


class Chapter(NamedTuple):
    """All examples of one class of error."""

    name: str
    says: str
    examples: Sequence[Example]


HELLO = "[00, Hello ranks](../notebooks/00_hello_ranks.ipynb)"
MESSAGES = "[01, Point to point](../notebooks/01_point_to_point.ipynb)"
COLLECTIVES = "[02, Collectives](../notebooks/02_collectives.ipynb)"
AVERAGES = "[05, Gradient averaging](../notebooks/05_gradient_averaging.ipynb)"
GROUPS = "[08, Groups](../notebooks/08_groups.ipynb)"
DEBUGGING = "11, debugging"

CHAPTERS = (
    Chapter(
        "RankFailed",
        "A rank raised an exception. The first failure in time is the cause; ranks that fell over "
        "because of it are listed below it, and need no attention of their own.",
        (
            Example(
                "One rank raises",
                """
def work():
    if dist.get_rank() == 2:
        raise ValueError("no such file: part-2.csv")
    dist.barrier()

run(work)
""",
                "Rank 2 raised, and the three others were waiting for it in the barrier. They were "
                "stopped.",
                "Mend the line that is shown, as you would without ranks. If only one rank has "
                "the problem, ask what differs on it: its part of the data, its file, its branch.",
                HELLO,
            ),
            Example(
                "Every rank raises the same",
                """
def work():
    x = torch.ones(4)
    dist.all_reduce(x)
    return y

run(work, world_size=2)
""",
                "All ranks run the same code, so a mistake in it shows on all of them: it is told "
                "once.",
                "Read it as the traceback of one process: the last line is the one that raised.",
                HELLO,
            ),
            Example(
                "The result cannot travel",
                """
import threading

def work():
    return threading.Lock()

run(work, world_size=2)
""",
                "What a rank returns is sent to the notebook, and a lock lives in one process.",
                "Return plain values: numbers, strings, lists, tensors.",
                HELLO,
            ),
            Example(
                "The result is too large",
                """
def work():
    return torch.empty(250_000_000)

run(work, world_size=1)
""",
                "A result is copied out of the rank; a gigabyte from each of them would fill the "
                "memory of the notebook. It was refused before it was copied.",
                "Return a summary: a norm, a slice, a shape. Save what is large to a file.",
                HELLO,
            ),
        ),
    ),
    Chapter(
        "RankDied",
        "A rank's process ended without returning from the function and without an exception: a "
        "signal, a crash in compiled code, or an exit.",
        (
            Example(
                "Killed from outside",
                """
import os, signal

def work():
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)

run(work, world_size=2)
""",
                "Nobody can catch SIGKILL. On a machine of your own it is most often the system, "
                "which was running out of memory.",
                "Look at the memory that a rank takes, times the number of ranks; run fewer, or "
                "smaller ones.",
                HELLO,
            ),
            Example(
                "A segmentation fault",
                """
import ctypes

def work():
    ctypes.string_at(0)

run(work, world_size=1)
""",
                "Compiled code read memory that is not there. The line is where Python called it.",
                "Look at what that line hands to compiled code: an address, a buffer, a library "
                "of another version.",
                DEBUGGING,
            ),
            Example(
                "Leaving early, with exit code 0",
                """
import os

def work():
    if dist.get_rank() == 1:
        os._exit(0)
    return dist.get_rank()

run(work, world_size=2)
""",
                "For a shell, exit code 0 is success. For the other ranks it is a peer that has "
                "gone: what they see is a closed connection, and plain gloo blames them for it.",
                "Return from the function. If one rank has nothing to do, it still has to make the "
                "collective calls that all make.",
                DEBUGGING,
            ),
            Example(
                "Leaving early by sys.exit",
                """
import sys

def work():
    if dist.get_rank() == 0:
        sys.exit(0)
    return dist.get_rank()

run(work, world_size=2)
""",
                "As above: `sys.exit` ends one rank, and a world is all of its ranks.",
                "Use `return`.",
                DEBUGGING,
            ),
        ),
    ),
    Chapter(
        "Deadlock",
        "Ranks wait for one another, or for a rank that has left, and nobody else can free them. "
        "It is told within about two seconds, because it can never end. A rank that is slow, or a "
        "large tensor that takes its time, is never called one.",
        (
            Example(
                "Both receive first",
                """
def work():
    other = 1 - dist.get_rank()
    inbox = torch.empty(4)
    dist.recv(inbox, src=other)
    dist.send(torch.ones(4), dst=other)

run(work, world_size=2)
""",
                "Each waits for a message that the other would send afterwards.",
                "Let one rank send first and the other receive first, or use `isend` and `irecv`.",
                MESSAGES,
            ),
            Example(
                "Both send first",
                """
def work():
    other = 1 - dist.get_rank()
    inbox = torch.empty(4)
    dist.send(torch.ones(4), dst=other)
    dist.recv(inbox, src=other)

run(work, world_size=2)
""",
                "With gloo a `send` returns when its `recv` has come, even for sixteen bytes. Code "
                "that relies on buffering works on one system and hangs on the next.",
                "As above. `isend` lets both sends begin; wait for them after the `recv`.",
                MESSAGES,
            ),
            Example(
                "A cycle of three",
                """
def work():
    rank, n = dist.get_rank(), dist.get_world_size()
    inbox = torch.empty(1)
    dist.recv(inbox, src=(rank + 1) % n)
    dist.send(torch.ones(1), dst=(rank - 1) % n)

run(work, world_size=3)
""",
                "The same in a circle. The last line of the text follows it round.",
                "One rank has to break the circle: let even ranks send first, odd ones receive.",
                MESSAGES,
            ),
            Example(
                "A peer that has already returned",
                """
def work():
    if dist.get_rank() == 0:
        dist.recv(torch.empty(1), src=1)

run(work, world_size=2)
""",
                "Rank 1 never sends: it is done. Nobody else can send in its name.",
                "Give every `recv` its `send`. Count both for each pair of ranks.",
                MESSAGES,
            ),
            Example(
                "A receive from anybody, and nobody sends",
                """
def work():
    if dist.get_rank() == 0:
        dist.recv(torch.empty(1))

run(work, world_size=3)
""",
                "Without `src`, any rank could send; all that could have returned.",
                "Count how many messages will come, and receive that many.",
                MESSAGES,
            ),
            Example(
                "A rank that does not take part in a collective",
                """
def work():
    if dist.get_rank() != 0:
        dist.all_reduce(torch.ones(1))

run(work, world_size=3)
""",
                "A collective is one call of all members of its group. Rank 0 has returned without "
                "it.",
                "Call it on every rank. A rank with nothing to add contributes zeros.",
                COLLECTIVES,
            ),
            Example(
                "Two groups, two orders",
                """
def work():
    small, large = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1), group=small)
        dist.all_reduce(torch.ones(1), group=large)
    else:
        dist.all_reduce(torch.ones(1), group=large)
        dist.all_reduce(torch.ones(1), group=small)

run(work, world_size=3)
""",
                "Rank 0 wants the others in the one group first, and they want it in the other.",
                "Let all ranks use their groups in the same order.",
                GROUPS,
            ),
            Example(
                "A Work that is never done",
                """
def work():
    inbox = torch.empty(1)
    request = dist.irecv(inbox, src=1 - dist.get_rank())
    request.wait()

run(work, world_size=2)
""",
                "`irecv` returns at once; here `wait` stands still, because nobody sends. Its line "
                "is the one that is shown.",
                "Begin the sends before you wait for the receives.",
                MESSAGES,
            ),
        ),
    ),
    Chapter(
        "Hang",
        "The function did not return within `timeout`. For every rank that is still running the "
        "lines are shown in which it stands, outermost first.",
        (
            Example(
                "A loop without end",
                """
def work():
    if dist.get_rank() == 0:
        while True: pass
    dist.barrier()

run(work, world_size=2, timeout=2)
""",
                "Rank 0 computes for ever. Rank 1 waits for it, which is its consequence and no "
                "deadlock: rank 0 could still come.",
                "Look at the rank that *was running*. If it is only slow, give it longer.",
                DEBUGGING,
            ),
        ),
    ),
    Chapter(
        "Mismatch",
        "Ranks made calls that do not fit together. gloo ends the process on some of these, hangs "
        "on others, and returns garbage on the rest; here all are told alike, with both lines.",
        (
            Example(
                "op: different collectives",
                """
def work():
    x = torch.ones(4)
    if dist.get_rank() == 0:
        dist.all_reduce(x)
    else:
        dist.broadcast(x, src=0)

run(work, world_size=2)
""",
                "The first call of one rank meets the first call of every other.",
                "Make the same calls in the same order on all ranks, outside of branches on rank.",
                COLLECTIVES,
            ),
            Example(
                "shape: different lengths",
                """
def work():
    x = torch.ones(1000 + dist.get_rank())
    dist.all_reduce(x)

run(work, world_size=2)
""",
                "An `all_reduce` adds element to element. gloo ends the process without a word of "
                "Python.",
                "Pad to one length, or agree on it first: `all_gather` the lengths.",
                COLLECTIVES,
            ),
            Example(
                "shape: an inbox of another size",
                """
def work():
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), dst=1)
    else:
        dist.recv(torch.empty(9), src=0)

run(work, world_size=2)
""",
                "A message does not bring its size. Into a larger inbox gloo writes the first part "
                "and reports success.",
                "Make the inbox as large as the message; send the length first if it varies.",
                MESSAGES,
            ),
            Example(
                "dtype: float32 against int32",
                """
def work():
    dtype = torch.float32 if dist.get_rank() == 0 else torch.int32
    x = torch.ones(4, dtype=dtype)
    dist.all_reduce(x)
    return x

run(work, world_size=2)
""",
                "Bytes are added as what they are not: gloo “succeeds” with numbers such as "
                "1065353216.",
                "Convert before you communicate.",
                COLLECTIVES,
            ),
            Example(
                "reduce op: SUM against MAX",
                """
def work():
    x = torch.ones(4)
    op = dist.ReduceOp.SUM if dist.get_rank() == 0 else dist.ReduceOp.MAX
    dist.all_reduce(x, op=op)
    return x

run(work, world_size=2)
""",
                "Each rank combines what it gets in its own way, and the results differ.",
                "Give all ranks the same op.",
                COLLECTIVES,
            ),
            Example(
                "root: two ranks each take themselves for it",
                """
def work():
    x = torch.ones(4)
    dist.broadcast(x, src=dist.get_rank())

run(work, world_size=2)
""",
                "`src` is the rank that everybody receives from, not the rank that calls.",
                "Write the same number on all ranks.",
                COLLECTIVES,
            ),
            Example(
                "peer: a send to somebody who listens elsewhere",
                """
def work():
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), dst=1)
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), src=2)

run(work, world_size=3)
""",
                "A message is addressed from both ends, and the ends do not agree.",
                "Write down who talks to whom, once for the sender and once for the receiver.",
                MESSAGES,
            ),
            Example(
                "tag: a send and a recv that miss one another",
                """
def work():
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), dst=1, tag=1)
    else:
        dist.recv(torch.empty(1), src=0, tag=2)

run(work, world_size=2)
""",
                "A `recv` takes only messages with its own tag.",
                "Use one tag on both sides, or none: NCCL ignores them.",
                MESSAGES,
            ),
            Example(
                "group: each half makes a group for itself",
                """
def work():
    mine = [0, 1] if dist.get_rank() < 2 else [2, 3]
    group = dist.new_group(mine)
    dist.all_reduce(torch.ones(1), group=group)

run(work, world_size=4)
""",
                "`new_group` is a call of all ranks: its first call makes the first group, and the "
                "ranks do not agree which one that is.",
                "Make all groups on all ranks, in the same order, and keep your own.",
                GROUPS,
            ),
            Example(
                "op: new_group by its members only",
                """
def work():
    if dist.get_rank() < 2:
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()

run(work, world_size=3)
""",
                "`new_group` is a call of all ranks, also of those that will not be in the group.",
                "Call it on every rank, before the branch; use the group inside it.",
                GROUPS,
            ),
            Example(
                "stride: elements that do not lie side by side",
                """
def work():
    base = torch.arange(8.0)
    dist.all_reduce(base[::2])
    return base

run(work, world_size=2)
""",
                "`base[::2]` is a view of every second element. gloo takes the address and the "
                "number of elements, and adds up the first half of `base` in place of it.",
                "Communicate `x.contiguous()`, and copy the result back.",
                COLLECTIVES,
            ),
        ),
    ),
    Chapter(
        "Hazard",
        "A buffer was touched while it was on its way, or nobody asked whether it had arrived. "
        "Such code often works, by luck.",
        (
            Example(
                "never waited for",
                """
def work():
    if dist.get_rank() == 0:
        dist.isend(torch.ones(1), dst=1)
    else:
        dist.recv(torch.empty(1), src=0)

run(work, world_size=2)
""",
                "Without `wait()`, the sender may change or free the tensor too early, and nobody "
                "hears of an error on the way.",
                "Keep the Work that `isend` returns, and wait for it.",
                MESSAGES,
            ),
            Example(
                "read before wait",
                """
def work():
    rank, n = dist.get_rank(), dist.get_world_size()
    inbox = torch.zeros(1)
    request = dist.irecv(inbox, src=(rank - 1) % n)
    dist.send(torch.ones(1), dst=(rank + 1) % n)
    seen = inbox.item()
    request.wait()
    return seen

simulate(work, world_size=2)
""",
                "`irecv` only promises that the buffer will be filled by the time `wait` returns. "
                "The simulator runs the code twice with different values in it, and sees that the "
                "result depends on them.",
                "Wait first, then read.",
                MESSAGES,
            ),
            Example(
                "written before wait",
                """
def work():
    if dist.get_rank() == 0:
        x = torch.ones(4)
        request = dist.isend(x, dst=1)
        x.zero_()
        request.wait()
    else:
        dist.recv(torch.empty(4), src=0)

simulate(work, world_size=2)
""",
                "Until `wait` returns, the tensor belongs to the message.",
                "Wait before you write, or send a copy: `x.clone()`.",
                MESSAGES,
            ),
        ),
    ),
    Chapter(
        "CourseError",
        "What was asked for cannot be. One line, at once: no rank has been started.",
        (
            Example(
                "A world without ranks",
                "run(print, world_size=0)",
                "A world has at least one rank.",
                "Leave `world_size` out for four.",
                HELLO,
            ),
            Example(
                "A world too large for one machine",
                "run(print, world_size=100_000)",
                "Ranks are processes here, and each takes memory.",
                "Simulate large worlds.",
                "08, trees at scale",
            ),
            Example(
                "A result in place of a function",
                """
def work():
    return 3

run(work())
""",
                "`work()` calls the function here, in the notebook; `run` was given what it "
                "returned.",
                "Leave the parentheses out.",
                HELLO,
            ),
            Example(
                "An argument that nobody gives",
                """
def work(rank):
    return rank

run(work)
""",
                "`torch.multiprocessing.spawn` passes the rank as first argument; `run` passes "
                "what you give it.",
                "Ask for the rank inside: `dist.get_rank()`.",
                HELLO,
            ),
            Example(
                "Something that cannot be sent to the ranks",
                """
import threading
lock = threading.Lock()

def work():
    with lock:
        return dist.get_rank()

run(work)
""",
                "The function travels to the ranks with the globals that it uses. Locks, open "
                "files and sockets belong to one process.",
                "Create it inside the function.",
                HELLO,
            ),
            Example(
                "A break-it cell in which nothing breaks",
                """
with expect(Deadlock):
    run(lambda: dist.get_rank(), world_size=2)
""",
                "`expect` is for cells that shall fail. This one did not.",
                "Look at what was mended.",
                HELLO,
            ),
        ),
    ),
)

HEAD = """# Errors, and how to read them

Every text on this page was provoked by the code above it: `python tools/errors_gallery.py` writes
the page. A cell begins with `import torch, torch.distributed as dist` and imports from `course_lib`
what it uses. Each error is a class in `course_lib.errors`; all are CourseErrors.
"""


# ---- provoking ----------------------------------------------------------------------------------


class Notebook:
    """Runs cells as a notebook does, each in a fresh namespace."""

    PREPARED = "import torch\nimport torch.distributed as dist\nfrom course_lib import *\n"

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        settings = Config()
        settings.HistoryManager.enabled = False  # writes no file
        self._shell = InteractiveShell.instance(config=settings)

    def error_of(self, example: Example) -> str:
        """The text that a notebook shows for this cell."""
        self._shell.reset(new_session=True)
        hidden = io.StringIO()  # what ranks print is not what this page is about
        with contextlib.redirect_stdout(hidden), contextlib.redirect_stderr(hidden):
            self._shell.run_cell(self.PREPARED)
            result = self._shell.run_cell(example.code.strip(), store_history=True)
        error = result.error_in_exec
        if error is None:
            raise SystemExit(f"{example.title}: nothing went wrong: {result.result!r}")
        if not hasattr(error, "_render_traceback_"):
            raise SystemExit(f"{example.title}: {type(error).__name__}: {error}")
        return "\n".join(error._render_traceback_())


def section(example: Example, text: str) -> str:
    """One example as it stands on the page."""
    return (
        f"### {example.title}\n\n```python\n{example.code.strip()}\n```\n\n"
        f"```text\n{text}\n```\n\n"
        f"**What it means.** {example.means}\n\n**What to do.** {example.todo}\n\n"
        f"*Explained in lesson {example.lesson}.*\n"
    )


def examples() -> Iterator[tuple[Chapter, Example]]:
    for chapter in CHAPTERS:
        for example in chapter.examples:
            yield chapter, example


def sections(wanted: Sequence[Example]) -> dict[str, str]:
    """Provoke these; title → section. Fails where an error is not of its chapter's class."""
    notebook = Notebook()
    done = {}
    for chapter, example in examples():
        if example in wanted:
            text = notebook.error_of(example)
            if not text.startswith(f"{chapter.name}: "):
                raise SystemExit(f"{example.title}: this is no {chapter.name}:\n{text}")
            done[example.title] = section(example, text)
    return done


def page(done: dict[str, str]) -> str:
    parts = [HEAD, _contents()]
    for chapter in CHAPTERS:
        parts.append(f"## {chapter.name}\n\n{chapter.says}\n")
        parts += [done[example.title] for example in chapter.examples]
    return "\n".join(parts)


def _contents() -> str:
    rows = [f"- [{c.name}](#{c.name.lower()}): {', '.join(e.title for e in c.examples)}"
            for c in CHAPTERS]  # fmt: skip
    return "\n".join(rows) + "\n"


def difference(done: dict[str, str], written: str) -> list[str]:
    """What differs between these sections and the page, as lines of a diff."""
    lines: list[str] = []
    for title, new in done.items():
        start = written.find(f"### {title}\n")
        old = written[start : start + len(new)] if start >= 0 else ""
        if old != new:
            lines += difflib.unified_diff(old.splitlines(), new.splitlines(), title, "now", n=1)
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--check", action="store_true", help="compare, change nothing")
    options.add_argument("--only", type=int, default=1, metavar="N", help="every N-th example")
    asked = options.parse_args(argv)
    everything = [example for _, example in examples()]
    done = sections(everything[:: asked.only])
    if not asked.check:
        if asked.only != 1:
            options.error("--only goes with --check")
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(done), encoding="utf-8")
        return 0
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = difference(done, written)
    if asked.only == 1 and not found and page(done) != written:
        found = ["the page differs outside of its examples"]
    print("\n".join(found) or f"{len(done)} examples, as they stand in {PAGE.relative_to(ROOT)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
