"""Every budget of the course, measured against a reference in the same run.

A wall-clock time says as much about the machine and its other work as about the code. A ratio of
two times, taken in turns, says something about the code. So each row here has a *reference*, the
same work done without the course (or a fixed number, where the promise is one), and reports the
median of ours, of the reference, and their ratio, with the spread between the quartiles. What
could not be measured here has a row, too, that says why. Rows are printed as they come.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
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
from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import find
from course_lib.checks.in_rank import Answer
from course_lib.ranks import recorder
from course_lib.ranks.plan import Deadline
from course_lib.ranks.standby import standby

RANKS = 4
ROOT = Path(__file__).resolve().parents[1]


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


@dataclass(frozen=True)
class Missing:
    """A budget that was not measured."""

    what: str
    not_measured: str  # why

    kept = None


def main(args: Namespace) -> int:
    """``bench [--json] [--quick] [--all]``; the exit code is 0 whatever comes out."""
    if not args.json:
        print(HEAD, flush=True)
    for row in rows(args.quick, args.all):
        line = json.dumps(asdict(row) | {"kept": row.kept}) if args.json else _line(row)
        print(line, flush=True)
    return 0


def rows(quick: bool, everything: bool) -> Iterator[Row | Missing]:
    """Each row as soon as it has been measured."""
    for bench in BENCHES:
        yield from bench(quick)
    for what, long_bench in LONG.items():
        if everything:
            yield from long_bench(quick)
        else:
            yield Missing(what, "it takes minutes; bench --all measures it")


HEAD = f"{'what':<46} {'ours':>12} {'± half':>9} {'reference':>12}  {'ratio':>7} {'budget':>7}"


def _line(row: Row | Missing) -> str:
    if isinstance(row, Missing):
        return f"{row.what:<46} not measured: {row.not_measured}"
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


def launching(quick: bool) -> Iterator[Row | Missing]:
    """The next ``run`` of four ranks with an all_reduce inside, with and without a spare world."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", __name__])
    repeats = 8 if quick else 20
    cold, warm, bare = [], [], []
    with _setting("GLOO_SOCKET_IFNAME", "lo"), _setting("OMP_NUM_THREADS", "1"):
        _bare_launch(context)
        run(_work, world_size=RANKS)
        for _ in range(repeats):
            bare.append(1e3 * _timed(lambda: _bare_launch(context)))
            with _setting("COURSE_LIB_STANDBY", "0"):
                run(_work, world_size=RANKS)  # ends the spare
                cold.append(1e3 * _timed(lambda: run(_work, world_size=RANKS)))
            run(_work, world_size=RANKS)  # starts a spare
            assert standby.world is not None
            standby.world.rendezvous(Deadline(60))
            warm.append(1e3 * _timed(lambda: run(_work, world_size=RANKS)))
    reference = "bare forkserver launch"
    yield _row("run() without a spare world", "ms", cold, reference, bare, 1.3)
    yield _row("run() with the spare ready", "ms", warm, reference, bare, 0.15)
    yield _row("run() with the spare ready, absolute", "ms", warm, "15 ms", [15.0], 1.0)
    yield from _spare_memory()


def _spare_memory() -> Iterator[Row | Missing]:
    """What the ranks of a spare world hold that they share with nobody (Linux only)."""
    run(_work, world_size=RANKS)
    assert standby.world is not None
    standby.world.rendezvous(Deadline(60))
    rollups = [Path(f"/proc/{rank.pid}/smaps_rollup") for rank in standby.world.ranks]
    if all(path.exists() for path in rollups):
        own = [_own_kilobytes(path.read_text()) / 1024 for path in rollups]
        yield _row("memory of a spare rank, its own", "MiB", own, "20 MiB", [20.0], 1.0)


def _own_kilobytes(rollup: str) -> int:
    rows = (line.split() for line in rollup.splitlines())
    return sum(int(words[1]) for words in rows if words[0].startswith("Private_"))


# ---- recording --------------------------------------------------------------------------------


def _in_turns(length: int, repeats: int, on_one_core: bool) -> tuple[list[float], ...]:
    """Seconds per all_reduce in one process, in turns: in two groups that are recorded, and in two
    that are not. Two of each, as every group has connections of its own, some faster than others.
    """
    if on_one_core:  # else most of the time would be that of waking gloo's thread on another core
        core = min(os.sched_getaffinity(0))
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), {core})
    x = torch.ones(length)
    active = recorder.active_recorder
    groups: list[Any] = [dist.new_group(), dist.new_group()]
    recorder.stop()
    groups += [dist.new_group(), dist.new_group()]  # nothing records: these have no hooks
    seconds: tuple[list[float], ...] = ([], [], [], [])
    orders = (0, 2, 1, 3), (3, 1, 2, 0), (2, 0, 3, 1), (1, 3, 0, 2)
    for turn in range(repeats):
        x.fill_(1.0)
        for which in orders[turn % 4]:
            recorder.resume(active if which < 2 else None)
            seconds[which].append(_timed(lambda: dist.all_reduce(x, group=groups[which])))  # noqa: B023
            recorder.stop()
    recorder.resume(active)
    return seconds


def recording(quick: bool) -> Iterator[Row | Missing]:
    """What the recorder adds to a call: in microseconds for a tiny one, in percent for a large.

    The last row says how far the percents can be trusted: there, neither call is recorded.
    """
    repeats = 150 if quick else 2000
    linux = hasattr(os, "sched_setaffinity")
    one, two, three, four = run(_in_turns, 1, repeats, linux, world_size=1).results[0]
    added = [1e6 * (a - b) for a, b in zip(one + two, three + four, strict=True)]
    yield _row("recorder, added to a call at world size 1", "µs", added, "20 µs", [20.0], 1.0)
    repeats = 50 if quick else 500  # twice as many pairs
    large = run(_in_turns, 1_000_000, repeats, False, world_size=2, timeout=300).results[0]
    one, two, three, four = ([1e3 * t for t in seconds] for seconds in large)
    name, reference = "all_reduce of 4 MB on 2 ranks", "the same call, not recorded"
    yield _row(f"{name}, recorded", "ms", one + two, reference, three + four, 1.03)
    yield _row(f"{name}, in another group", "ms", four, reference, three, 1.03)


# ---- telling ----------------------------------------------------------------------------------


def _both_receive() -> None:
    dist.recv(torch.empty(1), src=1 - dist.get_rank())


def _deadlock() -> None:
    try:
        run(_both_receive, world_size=2)
    except Deadlock:
        return
    raise AssertionError("two ranks that both receive first did not end in a Deadlock")


def telling(quick: bool) -> Iterator[Row | Missing]:
    """From the start of a deadlock to its sentence."""
    seconds = [_timed(_deadlock) for _ in range(2 if quick else 3)]
    yield _row("deadlock told", "s", seconds, "3 s", [3.0], 1.0)


# ---- watching ---------------------------------------------------------------------------------


def _chatter(calls: int) -> float:
    x = torch.ones(1)
    for _ in range(calls):
        dist.all_reduce(x)
    return time.perf_counter()


def _watched(calls: int) -> tuple[float, float]:
    """Seconds of this process's CPU, and of time from the function's end to that of run()."""
    start = time.process_time()
    ended = max(run(_chatter, calls, world_size=2, timeout=300).results)
    return time.process_time() - start, time.perf_counter() - ended


def watching(quick: bool) -> Iterator[Row | Missing]:
    """What a run that says much costs the notebook, against one that says an eighth of it."""
    many = 4_000 if quick else 40_000
    few = [_watched(many // 8)[0] for _ in range(5)]
    cpu, late = _watched(many)
    name, reference = f"watching {many:,} calls on 2 ranks", f"watching {many // 8:,} calls"
    yield _row(f"{name}, CPU", "s", [cpu], reference, few, 10.0)
    yield _row("from the function's end to the cell's", "s", [late], "0.5 s", [0.5], 1.0)


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


def _ring(ranks: int, budget: float, repeats: int) -> Row:
    """A chunked ring all_reduce of 256 elements a chunk, in rendezvous, in wall-clock seconds."""
    seconds = [
        _timed(lambda: simulate(_chunked_ring, 256, world_size=ranks, limit=300))
        for _ in range(repeats)
    ]
    name = f"chunked ring on {ranks} simulated ranks"
    return _row(name, "s", seconds, f"{budget:g} s", [budget], 1.0)


def simulating(_quick: bool) -> Iterator[Row | Missing]:
    """Rings that a lesson waits for."""
    yield _ring(64, 0.5, repeats=3)
    yield _ring(256, 6.0, repeats=1)


def simulating_many(_quick: bool) -> Iterator[Row | Missing]:
    """The largest ring."""
    yield _ring(1024, 90.0, repeats=1)


# ---- checking ---------------------------------------------------------------------------------


_NEVER_ENDS = "def my_share(n_items):\n    while True:\n        pass\n"


def _passes(exercise: str, source: str) -> bool:
    """The verdict of ``check`` on an answer's text."""
    return verdict_on(find(exercise), Answer(exercise, source=source, file="answer.py")).passed


def _right_answers() -> dict[str, str]:
    """By exercise, the text of the first right answer in tests/answers; none where no tests are."""
    tests = ROOT / "tests"
    if not (tests / "zoo.py").exists():
        return {}
    sys.path.insert(0, str(tests))
    import zoo

    return {exercise: next(iter(zoo.right(exercise).values())) for exercise in zoo.exercises()}


def _right(exercise: str, source: str) -> None:
    if not _passes(exercise, source):
        raise AssertionError(f"the first right answer to {exercise} did not pass its check")


def _never_ends() -> None:
    if _passes("my_share", _NEVER_ENDS):
        raise AssertionError("an answer that never ends has passed its check")


def checking(quick: bool) -> Iterator[Row | Missing]:
    """One ``check`` of a right answer to each exercise, and of an answer that never ends."""
    answers = list(_right_answers().items())[:: 9 if quick else 1]
    seconds = {name: _timed(lambda: _right(name, source)) for name, source in answers}  # noqa: B023
    if seconds:
        slowest = max(seconds, key=seconds.__getitem__)
        every = list(seconds.values())
        yield _row("check of a right answer, all exercises", "s", every, "3 s", [3.0], 1.0)
        yield _row(f"the slowest of them, {slowest}", "s", [seconds[slowest]], "3 s", [3.0], 1.0)
    else:
        yield Missing("check of a right answer", "tests/answers is not here")
    hung = [_timed(_never_ends) for _ in range(1 if quick else 3)]
    yield _row("check of an answer that never ends", "s", hung, "10 s", [10.0], 1.0)


# ---- lessons and tests ------------------------------------------------------------------------


def _nbval(notebook: Path) -> int:
    """Compare a solved notebook with a fresh run; pytest's exit code."""
    from course_lib.notebooks.execute import compare

    with tempfile.TemporaryDirectory() as folder:
        rules = notebook.parents[1] / "sanitize.cfg"
        return compare(notebook, rules, ROOT, Path(folder)).returncode


def comparing(quick: bool) -> Iterator[Row | Missing]:
    """Each lesson's solution notebook under nbval, from the start of pytest to its end."""
    what = "solution notebook under nbval"
    notebooks = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
    if not notebooks:
        yield Missing(what, "notebooks/solutions is not here")
    elif importlib.util.find_spec("nbval") is None:
        yield Missing(what, "nbval is not installed (requirements-dev.txt)")
    else:
        for notebook in notebooks[: 1 if quick else None]:
            name, start = f"nbval of {notebook.stem}", time.perf_counter()
            if _nbval(notebook):
                yield Missing(name, "its outputs are not those that are stored")
            else:
                seconds = [time.perf_counter() - start]
                yield _row(name, "s", seconds, "45 s", [45.0], 1.0)


def testing(_quick: bool) -> Iterator[Row | Missing]:
    """All tests, as ``make test`` runs them once everything is installed."""
    if not (ROOT / "tests" / "conftest.py").exists():
        yield Missing("make test", "tests is not here")
        return
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    passed = "" if done.returncode == 0 else ", some fail"
    yield _row(f"make test{passed}", "s", [seconds], "480 s", [480.0], 1.0)


BENCHES = (launching, recording, telling, watching, simulating, checking)
LONG = {
    "chunked ring on 1024 simulated ranks": simulating_many,
    "nbval of each lesson": comparing,
    "make test": testing,
}
