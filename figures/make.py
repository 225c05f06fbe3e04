"""Draw the pictures of the README and of the lessons' titles, each from a run made here and now.

    python figures/make.py            all of them
    python figures/make.py readme     those whose names start so

readme.png          computing, a message round the ring, and an all_reduce on four ranks
00_hello_ranks.png  two steps of lesson 00's own training job, its cells taken from the lesson
01_point_to_point.png  the same messages one after another and all at once, simulated
02_collectives.png  who has what, before and after five collectives
03_cost_model.png   lesson 03's own message times and fit, its cells taken from the lesson
04_ring_all_reduce.png  lesson 04's ring on four simulated ranks, its cells taken from the lesson
05_gradient_averaging.png  how far the weights of four ranks are from those of one process
06_ddp.png          one step of lesson 06's network under DDP, its cells taken from the lesson
07_gpus.png         lesson 07's step in both ways on two modelled GPUs, its cells from the lesson
08_groups.png       the grid of lesson 08 with its slow rank, its cells taken from the lesson
09_trees_at_scale.png  lesson 09's map of the fastest all-reduce, its cells taken from the lesson
10_mini_ddp.png     lesson 10's step times by size of a bucket, its cells taken from the lesson
11_debugging.png    what five tests of lesson 11 catch, its cells taken from the lesson
12_recovery.png     lesson 12's curves of what was forgotten, its cells taken from the lesson
13_sharding.png     lesson 13's stages of ZeRO, its cells taken from the lesson
14_tensor_parallel.png  lesson 14's layer inside and across nodes, its cells from it
15_pipeline.png     lesson 15's GPipe and 1F1B, one below the other, its cells from it
16_experts.png      lesson 16's steps with even and with skewed loads, its cells from it
17_capstone.png     lesson 17's map of the fastest plan, its cells from it

Times in the pictures of real runs are those of the machine that drew them.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from course_lib import Network, Run, draw, run, simulate, span  # noqa: E402
from course_lib.draw import Picture  # noqa: E402
from course_lib.user_code import show_lines  # noqa: E402
from course_staff.authoring.source import read_lesson  # noqa: E402


def names_of(lesson: str, last: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """What a lesson's cells define, up to the one that defines ``last``; exercises left out, and
    cells that have one of the texts ``without``."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):  # what the cells print
        for cell in read_lesson(ROOT / "notebooks" / "src" / f"{lesson}.py").cells:
            left_out = cell.exercise or any(text in cell.text for text in without)
            if cell.kind == "code" and not left_out and last not in names:
                show_lines(f"{cell.id}.py", cell.text)
                exec(compile(cell.text, f"{cell.id}.py", "exec"), names)
    return names


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


def shown(job: Run) -> tuple[float, float]:
    """From when the first rank leaves the barrier to when the last one leaves the all_reduce."""
    start = min(event.completed or 0.0 for event in job.trace.ops("barrier"))
    return start, max(event.completed or 0.0 for event in job.trace.ops("all_reduce"))


def readme() -> Picture:
    jobs = [run(ring) for _ in range(20)]
    job = min(jobs, key=lambda job: shown(job)[1] - shown(job)[0])  # least held up by other work
    assert job.results == [6.0] * 4
    return draw.timeline(
        job,
        between=shown(job),
        caption="Four real processes, as recorded: each computes, passes a tensor to its right "
        "neighbour, and adds it up with everybody. Hatched: somebody waits.",
    )


def hello_ranks() -> Picture:
    """Lesson 00's training job: its first two code cells, as they stand there."""
    names = names_of("00_hello_ranks", "train")
    job = run(names["train"])
    steps = [span.start for span in job.trace.spans if span.rank == 0]
    return draw.timeline(
        job,
        between=(steps[40], steps[42]),
        caption="Two training steps on four ranks, as recorded: each computes gradients for its "
        "own images, then all meet to average them.",
    )


def to_the_right(mine: torch.Tensor) -> None:
    """Each rank hands a tensor to the next one: listening first, then all at once."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    inbox = torch.empty_like(mine)
    with span("listen first"):
        if rank > 0:
            dist.recv(inbox, rank - 1)
        if rank < last:
            dist.send(mine, rank + 1)
    dist.barrier()
    with span("all at once"):
        works = [dist.irecv(inbox, rank - 1)] if rank > 0 else []
        works += [dist.isend(mine, rank + 1)] if rank < last else []
        for work in works:
            work.wait()


def point_to_point() -> Picture:
    network = Network(latency=5e-6, bandwidth=25e9)
    job = simulate(to_the_right, torch.ones(250_000), world_size=4, network=network)
    return draw.timeline(
        job,
        caption="Three messages of 1 MB on four simulated ranks, twice. Left: each rank listens "
        "before it speaks, and the others stand still (hatched). Right: all at once.",
    )


def cost_model() -> Picture:
    """Lesson 03's measured message times and the line through them, its cells as they stand."""
    names = names_of("03_cost_model", "alpha")
    sizes, measured, alpha, beta = (names[n] for n in ("sizes", "measured", "alpha", "beta"))
    line = [alpha + nbytes * beta for nbytes in sizes]
    return draw.lines(
        {"measured on two processes": (sizes, measured), "α + S·β": (sizes, line)},
        xlabel="size S of the message, bytes",
        ylabel="time one way, s",
        loglog=True,
        formulas=["α + S·β"],
        caption="Messages between two real processes, from 4 bytes to 4 MiB: two fitted numbers, "
        "a latency and a time for each byte, draw the line.",
    )


def ring_all_reduce() -> Picture:
    """Lesson 04's megabyte on four simulated ranks: its cells up to that one.

    Not its film: that would answer what the lesson asks before it shows the film.
    """
    names = names_of("04_ring_all_reduce", "megabyte")
    return draw.timeline(
        names["megabyte"],
        caption="A ring all-reduce of 1 MB on four simulated ranks: six steps of 250 kB, and every "
        "link is busy in each of them.",
    )


def five_collectives() -> dict[str, Any]:
    """What this rank has before and after; rank r begins with 1, 2, 3, 4 times 10^r."""
    mine = torch.tensor([1, 2, 3, 4]) * 10 ** dist.get_rank()
    told, total = mine.clone(), mine.clone()
    everything, block = mine.new_empty(4), mine.new_empty(1)
    boxes = [mine.new_empty(1) for _ in range(4)] if dist.get_rank() == 1 else None
    dist.broadcast(told, src=2)
    dist.gather(mine[:1], boxes, dst=1)
    dist.all_gather_single(everything, mine[:1])
    dist.all_reduce(total)
    dist.reduce_scatter_single(block, mine.clone())
    return {"before": mine, "broadcast from rank 2": told, "gather on rank 1": boxes,
            "all_gather": everything, "all_reduce": total, "reduce_scatter": block}  # fmt: skip


def collectives() -> Picture:
    return draw.values(
        run(five_collectives),
        caption="Four real ranks, as recorded; the gathers take the first number of each row. "
        "A cell has the colour of the rank that it comes from; sums are grey.",
    )


def gradient_averaging() -> Picture:
    """Lesson 05's distance from the twin: the lesson's code cells up to the one that draws it."""
    names = names_of("05_gradient_averaging", "differences")
    return draw.lines(
        {dtype: (range(1, 73), row) for dtype, row in names["differences"].items()},
        xlabel="training step",
        ylabel="largest relative difference",
        logy=True,
        caption="Weights of four ranks against those of one process, step by step, in two "
        "precisions. What differs is rounding: it is one model.",
    )


def ddp() -> Picture:
    """A step under DDP as lesson 06 records it: its cells up to the recording."""
    names = names_of("06_ddp", "wrapped")
    between, *_ = names["window"](names["wrapped"])
    return draw.timeline(
        names["wrapped"],
        between=between,
        caption="One training step of two ranks under DDP, as recorded: the first bucket leaves "
        "while backward still computes. Hatched background: nothing is left to compute. Hatched "
        "bar: waits for the other rank.",
    )


def gpus() -> Picture:
    """Lesson 07's step in both ways: its cells up to the one that defines it."""
    names = names_of("07_gpus", "training_step")

    def both_ways() -> None:
        for overlap in (False, True):
            names["training_step"](overlap)

    return draw.timeline(
        names["on_gpus"](both_ways, world_size=2),
        caption="A training step on two modelled GPUs, twice. Left: computing waits for each "
        "reduction. Right: three of four reductions run beside it, and only the last one sticks "
        "out.",
    )


def groups() -> Picture:
    """Whom a slow rank delays, as lesson 08 simulates it: its cells up to that one."""
    names = names_of("08_groups", "once")
    return draw.mesh(
        names["once"],
        (3, 3),
        marked=names["late_ranks"](names["once"]),
        caption="All sum in their row and in their column. Rank 4 is late, and so are all that "
        "wait for it.",
    )


def trees_at_scale() -> Picture:
    """Lesson 09's map: its own cells up to the one that draws it, exercises left out."""
    names = names_of("09_trees_at_scale", "rows")
    return draw.areas(
        names["ns"],
        names["rows"],
        {way: places for way, places in names["points"].items() if places},
        xlabel="ranks",
        ylabel="bytes",
        caption="The fastest all-reduce on links of 5 µs and 25 GB/s: areas by formulas, points by "
        "simulated runs of all four algorithms.",
    )


def mini_ddp() -> Picture:
    """Lesson 10's times by size of a bucket: its own cells, exercises left out."""
    names = names_of("10_mini_ddp", "best")
    return draw.lines(
        {
            "our hooks": (names["sizes"], names["ours"]),
            "DistributedDataParallel": (names["sizes"], names["theirs"]),
        },
        "layers in a bucket",
        "ms per step",
        formulas=["DistributedDataParallel"],  # dashed, so that both are seen
        exact=True,
        caption="A training step on two modelled GPUs: small buckets pay a latency each, and of "
        "large ones the last leaves late. The two curves coincide.",
    )


def debugging() -> Picture:
    """Lesson 11's five tests, and how many wrong functions each catches: its own cells, without
    those that start jobs."""
    names = names_of("11_debugging", "matrix", without=["start(", "read_logs("])
    return draw.bars(
        {name.replace("_", " "): sum(row) for name, row in names["matrix"].items()},
        unit="caught",
        exact=True,
        caption="How many of nine wrong all_reduces a test catches. One compares the function with "
        "itself, and catches none.",
    )


def sharding() -> Picture:
    """Lesson 13's steps in all stages of ZeRO: its own cells, exercises left out."""
    names = names_of("13_sharding", "formula")
    return draw.memory(
        *names["stages"],
        titles=[
            "nothing divided",
            "ZeRO 1: Adam's averages divided",
            "ZeRO 2: and gradients",
            "ZeRO 3: and parameters",
        ],
        unit=("P", names["P"]),
        caption="Alive on one of four ranks in three training steps of the same model. P is the "
        "size of all parameters.",
    )


def tensor_parallel() -> Picture:
    """Lesson 14's layer on modelled GPUs, inside and across nodes: its own cells."""
    names = names_of("14_tensor_parallel", "times")
    return draw.lines(
        {name: (names["counts"], row) for name, row in names["times"].items()},
        "GPUs that share a layer",
        "ms",
        loglog=True,
        caption="One layer cut into n parts, forward and backward, on modelled GPUs.",
    )


def pipeline() -> Picture:
    """Lesson 15's two schedules side by side, each on four ranks: its own cells."""
    names = names_of("15_pipeline", "ours")
    orders = names["gpipe"] + names["one_after_one"](4, 8)

    def both() -> None:
        names["play"](orders, range(4) if dist.get_rank() < 4 else range(4, 8))

    job = simulate(both, world_size=8, network=names["FREE"], buffered=True)
    return draw.timeline(
        job,
        caption="One training step on four stages with eight micro-batches: GPipe on ranks 0 to "
        "3, 1F1B on ranks 4 to 7. Light is forward, dark is backward, hatched is idle.",
    )


def experts() -> Picture:
    """Lesson 16's two steps on eight ranks: its own cells."""
    return draw.timeline(
        names_of("16_experts", "both")["both"],
        caption="Two steps of a layer of experts on eight ranks: with even loads, and with four "
        "times its share for the expert on rank 0.",
    )


def capstone() -> Picture:
    """Lesson 17's map of the fastest plans: its own cells, the simulations left out."""
    names = names_of("17_capstone", "PLANS", without=["llama(", "whole(", "(two"])
    return draw.areas(
        names["GPUS"],
        names["rows"],
        names["PLANS"],
        "GPUs",
        "parameters",
        caption="The fastest plan that fits, by formulas, for steps of 4 million tokens on H100s. "
        "Points: plans that others have published.",
    )


def recovery() -> Picture:
    """Lesson 12's job that goes on after step 9: its own cells, exercises left out."""
    return draw.lines(
        names_of("12_recovery", "curves")["curves"],
        "step",
        "loss",
        formulas=["undisturbed"],  # dashed, so that both are seen
        caption="A job goes on after step 9: with everything restored its curve is that of the "
        "undisturbed one, bit for bit, and with one thing forgotten it is another.",
    )


PICTURES: dict[str, Callable[[], Picture]] = {
    "readme": readme,
    "00_hello_ranks": hello_ranks,
    "01_point_to_point": point_to_point,
    "02_collectives": collectives,
    "03_cost_model": cost_model,
    "04_ring_all_reduce": ring_all_reduce,
    "05_gradient_averaging": gradient_averaging,
    "06_ddp": ddp,
    "07_gpus": gpus,
    "08_groups": groups,
    "09_trees_at_scale": trees_at_scale,
    "10_mini_ddp": mini_ddp,
    "11_debugging": debugging,
    "12_recovery": recovery,
    "13_sharding": sharding,
    "14_tensor_parallel": tensor_parallel,
    "15_pipeline": pipeline,
    "16_experts": experts,
    "17_capstone": capstone,
}


def main(wanted: str = "") -> None:
    for name, make in PICTURES.items():
        if name.startswith(wanted):
            picture = make()
            path = ROOT / "figures" / f"{name}.png"
            path.write_bytes(picture.png()[0])
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} KB")


if __name__ == "__main__":
    main(*sys.argv[1:2])
