"""Every budget of the course, measured against a reference in the same run.

A wall-clock time says as much about the machine and its other work as about the code. A ratio of
two times, taken in turns, says something about the code. So each row here has a *reference*, the
same work done without the course (or a fixed number, where the promise is one), and reports the
median of ours, of the reference, and their ratio, with the spread between the quartiles.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course_lib import Deadlock, run, simulate
from course_lib.ranks import recorder
from course_lib.ranks.spare import stock

RANKS = 4


@dataclass(frozen=True)
class Row:
    """One budget: what was measured, what against, and what is allowed."""

    what: str
    unit: str
    ours: float
    spread: float  # between the quartiles of ours
    reference: str
    reference_value: float
    ratio: float
    at_most: float  # of the ratio
    repeats: int

    @property
    def kept(self) -> bool:
        return self.ratio <= self.at_most


def main(args: Namespace) -> int:
    """``python -m course_lib bench [--json] [--quick]``; the exit code is 0 whatever comes out."""
    rows = [row for bench in BENCHES for row in bench(args.quick)]
    if args.json:
        print(json.dumps([asdict(row) | {"kept": row.kept} for row in rows], indent=2))
    else:
        print("\n".join(table(rows)))
    return 0


def table(rows: list[Row]) -> list[str]:
    """The rows as text, one line each."""
    head = f"{'what':<46} {'ours':>12} {'± half':>9} {'reference':>12}  {'ratio':>7} {'budget':>7}"
    return [head, *(_line(row) for row in rows)]


def _line(row: Row) -> str:
    ours, reference = f"{row.ours:.4g} {row.unit}", f"{row.reference_value:.4g} {row.unit}"
    kept = "kept" if row.kept else "NOT KEPT"
    return (
        f"{row.what:<46} {ours:>12} {row.spread / 2:>9.2g} {reference:>12}  "
        f"{row.ratio:>7.3f} {row.at_most:>7.3f}  {kept}   ({row.reference}; n={row.repeats})"
    )


def _row(what, unit, ours, reference, reference_values, at_most) -> Row:
    middle, base = statistics.median(ours), statistics.median(reference_values)
    quartiles = statistics.quantiles(ours, n=4) if len(ours) > 1 else [middle] * 3
    return Row(what, unit, middle, quartiles[2] - quartiles[0], reference, base,
               middle / base, at_most, len(ours))  # fmt: skip


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# ---- launching --------------------------------------------------------------------------------


def _from_a_cell() -> Callable[[], float]:
    """A function that travels by value, as one that was defined in a cell does."""

    def work() -> float:
        x = torch.ones(4)
        dist.all_reduce(x)
        return x.sum().item()

    return work


_work = _from_a_cell()


def _bare_rank(rank: int, path: str, answers) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(path, RANKS), rank=rank, world_size=RANKS)
    answers.put(_work())
    dist.barrier()
    dist.destroy_process_group()


def _bare_launch(context) -> None:
    """What one would write with the standard library: four processes, a queue for the results."""
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_bare_rank, args=(r, f"{folder}/store", answers))
            for r in range(RANKS)
        ]
        for rank in ranks:
            rank.start()
        assert [answers.get() for _ in ranks] == [16.0] * RANKS
        for rank in ranks:
            rank.join()


@contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def launching(quick: bool) -> Iterator[Row]:
    """The next ``run`` of four ranks with an all_reduce inside, with and without a spare world."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", __name__])
    repeats = 8 if quick else 30
    cold, warm, bare = [], [], []
    with _setting("GLOO_SOCKET_IFNAME", "lo"), _setting("OMP_NUM_THREADS", "1"):
        _bare_launch(context)
        run(_work, world_size=RANKS)
        for _ in range(repeats):
            bare.append(1e3 * _timed(lambda: _bare_launch(context)))
            with _setting("COURSE_LIB_SPARE", "0"):
                run(_work, world_size=RANKS)  # ends the spare
                cold.append(1e3 * _timed(lambda: run(_work, world_size=RANKS)))
            run(_work, world_size=RANKS)  # starts a spare
            assert stock.spare is not None
            stock.spare.form()
            warm.append(1e3 * _timed(lambda: run(_work, world_size=RANKS)))
    reference = "bare forkserver launch"
    yield _row("run() without a spare world", "ms", cold, reference, bare, 1.3)
    yield _row("run() with the spare ready", "ms", warm, reference, bare, 0.15)
    yield _row("run() with the spare ready, absolute", "ms", warm, "15 ms", [15.0], 1.0)
    yield from _spare_memory()


def _spare_memory() -> Iterator[Row]:
    """What the ranks of a spare world hold that they share with nobody (Linux only)."""
    run(_work, world_size=RANKS)
    assert stock.spare is not None
    stock.spare.form()
    rollups = [Path(f"/proc/{rank.pid}/smaps_rollup") for rank in stock.spare.ranks]
    if all(path.exists() for path in rollups):
        own = [_own_kilobytes(path.read_text()) / 1024 for path in rollups]
        yield _row("memory of a spare rank, its own", "MiB", own, "20 MiB", [20.0], 1.0)


def _own_kilobytes(rollup: str) -> int:
    rows = (line.split() for line in rollup.splitlines())
    return sum(int(words[1]) for words in rows if words[0].startswith("Private_"))


# ---- recording --------------------------------------------------------------------------------


def _pairs(length: int, repeats: int, on_one_core: bool) -> tuple[list[float], list[float]]:
    """Seconds per all_reduce, recorded and not, in turns, in one process."""
    if on_one_core:  # else most of the time would be that of waking gloo's thread on another core
        core = min(os.sched_getaffinity(0))
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), {core})
    x = torch.ones(length)
    recording = recorder.at_work
    watched: Any = dist.new_group()
    recorder.stop()
    bare_group: Any = dist.new_group()  # made while nothing records, so it has no hooks
    recorded: list[float] = []
    bare: list[float] = []

    def call_recorded() -> None:
        recorder.resume(recording)
        recorded.append(_timed(lambda: dist.all_reduce(x, group=watched)))
        recorder.stop()

    def call_bare() -> None:
        bare.append(_timed(lambda: dist.all_reduce(x, group=bare_group)))

    for pair in range(repeats):
        x.fill_(1.0)
        for call in (call_recorded, call_bare) if pair % 2 else (call_bare, call_recorded):
            call()
    recorder.resume(recording)
    return recorded, bare


def recording(quick: bool) -> Iterator[Row]:
    """What the recorder adds to a call: in microseconds for a tiny one, in percent for a large."""
    repeats = 300 if quick else 2000
    linux = hasattr(os, "sched_setaffinity")
    tiny, plain = run(_pairs, 1, repeats, linux, world_size=1).results[0]
    added = [1e6 * (a - b) for a, b in zip(tiny, plain, strict=True)]
    yield _row("recorder, added to a call at world size 1", "µs", added, "20 µs", [20.0], 1.0)
    repeats = 100 if quick else 1500
    large, plain = run(_pairs, 1_000_000, repeats, False, world_size=2, timeout=300).results[0]
    yield _row("all_reduce of 4 MB on 2 ranks, recorded", "ms", [1e3 * t for t in large],
               "the same call, not recorded", [1e3 * t for t in plain], 1.03)  # fmt: skip


# ---- telling ----------------------------------------------------------------------------------


def _both_receive() -> None:
    dist.recv(torch.empty(1), src=1 - dist.get_rank())


def _deadlock() -> None:
    try:
        run(_both_receive, world_size=2)
    except Deadlock:
        return
    raise AssertionError("two ranks that both receive first did not end in a Deadlock")


def telling(quick: bool) -> Iterator[Row]:
    """From the start of a deadlock to its sentence."""
    seconds = [_timed(_deadlock) for _ in range(2 if quick else 5)]
    yield _row("deadlock told", "s", seconds, "3 s", [3.0], 1.0)


# ---- simulating -------------------------------------------------------------------------------


def _chunked_ring(chunk: int) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.ones(n * chunk)
    chunks, inbox = list(x.chunk(n)), torch.empty(chunk)
    for step in range(2 * (n - 1)):
        works = [
            dist.isend(chunks[(rank - step) % n], (rank + 1) % n),
            dist.irecv(inbox, (rank - 1) % n),
        ]
        for work in works:
            work.wait()  # type: ignore[union-attr]
        target = chunks[(rank - step - 1) % n]
        if step < n - 1:
            target += inbox
        else:
            target.copy_(inbox)
    assert bool((x == n).all())


def simulating(quick: bool) -> Iterator[Row]:
    """A chunked ring all_reduce of 256 elements a chunk, in rendezvous, in wall-clock seconds."""
    for ranks, budget in (
        ((64, 0.5), (256, 6.0)) if quick else ((64, 0.5), (256, 6.0), (1024, 90.0))
    ):
        repeats = 1 if ranks > 64 else 3
        seconds = [
            _timed(lambda: simulate(_chunked_ring, 256, world_size=ranks, limit=300))  # noqa: B023
            for _ in range(repeats)
        ]
        name = f"chunked ring on {ranks} simulated ranks"
        yield _row(name, "s", seconds, f"{budget:g} s", [budget], 1.0)


BENCHES = (launching, recording, telling, simulating)
