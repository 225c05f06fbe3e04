"""Draw the pictures of the README and of the lessons' titles, each from a run made here and now.

    python figures/make.py            all of them
    python figures/make.py readme     those whose names start so

readme.png          computing, a message round the ring, and an all_reduce on four ranks
00_hello_ranks.png  two steps of lesson 00's own training job, its cells taken from the lesson
06_ddp.png          one step of lesson 06's network under DDP, its cells taken from the lesson

Times in the pictures are those of the machine that drew them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from course_lib import draw, run, span  # noqa: E402
from course_lib.draw import Picture  # noqa: E402
from course_lib.notebooks.source import read_lesson  # noqa: E402


def work(times: int) -> None:
    a = torch.ones(256, 256)
    with span("compute"):
        for _ in range(times):
            a @ a


def ring() -> float:
    """What a rank can do: compute, talk to its neighbours, talk to all."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine, inbox = torch.full((65536,), float(rank)), torch.empty(65536)
    dist.barrier()
    work(6 + 4 * rank)
    sent = dist.isend(mine, (rank + 1) % world_size)
    dist.recv(inbox, (rank - 1) % world_size)
    sent.wait()
    work(6)
    dist.all_reduce(inbox)
    return float(inbox[0])


def readme() -> Picture:
    run(ring)  # the first run of a fresh world pays for connections
    job = run(ring)
    assert job.results == [6.0] * 4
    start = min(event.completed or 0.0 for event in job.trace.ops("barrier"))
    end = max(event.completed or 0.0 for event in job.trace.ops("all_reduce"))
    return draw.timeline(
        job,
        between=(start, end),
        caption="Four real processes, as recorded: each computes, passes a tensor to its right "
        "neighbour, and adds it up with everybody. Hatched: somebody waits.",
    )


def hello_ranks() -> Picture:
    """Lesson 00's training job: its first two code cells, as they stand there."""
    lesson = read_lesson(ROOT / "notebooks" / "src" / "00_hello_ranks.py")
    given = [cell for cell in lesson.cells if cell.kind == "code"][:2]
    names: dict = {"__name__": "__main__"}
    for cell in given:
        exec(compile(cell.text, f"<{cell.id}>", "exec"), names)
    job = run(names["train"])
    steps = [span.start for span in job.trace.spans if span.rank == 0]
    return draw.timeline(
        job,
        between=(steps[40], steps[42]),
        caption="Two training steps on four ranks, as recorded: each computes gradients for its "
        "own images, then all meet to average them.",
    )


def ddp() -> Picture:
    """A step under DDP as lesson 06 records it: its cells up to the window, as they stand there."""
    lesson = read_lesson(ROOT / "notebooks" / "src" / "06_ddp.py")
    names: dict = {"__name__": "__main__"}
    for cell in (cell for cell in lesson.cells if cell.kind == "code"):
        text = cell.text.split("between, backward")[0]
        exec(compile(text, f"<{cell.id}>", "exec"), names)
        if "def window" in text:
            break
    between, _, _ = names["window"](names["wrapped"])
    return draw.timeline(
        names["wrapped"],
        between=between,
        caption="One training step of two ranks under DDP, as recorded: the first bucket is being "
        "reduced while backward still computes.",
    )


PICTURES: dict[str, Callable[[], Picture]] = {
    "readme": readme,
    "00_hello_ranks": hello_ranks,
    "06_ddp": ddp,
}


def main(wanted: str = "") -> None:
    for name, make in PICTURES.items():
        if name.startswith(wanted):
            picture = make()
            path = ROOT / "figures" / f"{name}.png"
            path.write_bytes(picture._repr_png_()[0])
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} KB")


if __name__ == "__main__":
    main(*sys.argv[1:2])
