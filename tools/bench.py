"""Every budget of the course, measured now: ``python tools/bench.py [--quick] [--all]``.

A wall-clock time says as much about the machine and its other work as about the code; a ratio of
two times, taken in turns, says something about the code. So where a budget is relative, its row has
a *reference*, the same work done without the course, in the same run. A row holds the median, half
the spread between the quartiles, and what is allowed. Rows are printed as they are measured, and
what could not be measured here has a row that says why. The exit code is 0 whatever comes out.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from course_check.checking import verdict_on  # noqa: E402
from course_check.harness.answer import Answer  # noqa: E402
from course_exercises.catalogue import exercises, find  # noqa: E402
from course_lib import Deadlock, compute, run, simulate  # noqa: E402
from course_lib.launching.plan import Deadline  # noqa: E402
from course_lib.launching.standby import standby  # noqa: E402
from course_lib.recording import recorder  # noqa: E402

RANKS = 4


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Every budget of the course, measured now.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--all", action="store_true", help="also what takes minutes")
    args = parser.parse_args(argv)
    for bench in BENCHES:
        for row in bench(args.quick):
            print(row, flush=True)
    for what, long_bench in LONG.items():
        for row in long_bench() if args.all else [not_measured(what, "minutes; see --all")]:
            print(row, flush=True)
    return 0


def row(
    what: str, ours: list[float], unit: str, at_most: float,
    reference: str = "", reference_values: list[float] | None = None,
) -> str:  # fmt: skip
    """One line: what was measured, and whether it is at most what is allowed. ``at_most`` is in
    ``unit``, or a factor of the reference where there is one."""
    middle = statistics.median(ours)
    quartiles = statistics.quantiles(ours, n=4) if len(ours) > 1 else [middle] * 3
    measured, text = middle, f"at most {at_most:g} {unit}"
    if reference_values:
        base = statistics.median(reference_values)
        measured = middle / base
        text = f"{measured:.3f} × {base:.4g} {unit} of {reference}, at most {at_most:g} ×"
    spread = (quartiles[2] - quartiles[0]) / 2
    kept = "kept" if measured <= at_most else "NOT KEPT"
    return f"{what:<50} {middle:>9.4g} {unit:<3} ± {spread:<7.2g} {kept:<8}  {text} (n={len(ours)})"


def not_measured(what: str, why: str) -> str:
    return f"{what:<50} not measured: {why}"


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# ---- launching --------------------------------------------------------------------------------


def add_up() -> float:
    x = torch.ones(4)
    dist.all_reduce(x)
    return x.sum().item()


def bare_rank(rank: int, path: str, answers) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(path, RANKS), rank=rank, world_size=RANKS)
    answers.put(add_up())
    dist.barrier()
    dist.destroy_process_group()


def bare_launch(context) -> None:
    """What one would write with the standard library: four processes, a queue for the results."""
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=bare_rank, args=(r, f"{folder}/store", answers))
            for r in range(RANKS)
        ]
        for rank in ranks:
            rank.start()
        assert [answers.get() for _ in ranks] == [16.0] * RANKS
        for rank in ranks:
            rank.join()


def run_and_wait_for_the_standby() -> list[int]:
    """The standby's process ids."""
    run(add_up, world_size=RANKS)
    assert standby.ready is not None
    standby.ready.wait_until_ready(Deadline(60))
    return [rank.pid for rank in standby.ready.ranks]


def launching(quick: bool) -> Iterator[str]:
    """The next ``run`` of four ranks with an all_reduce inside, with and without a standby."""
    context = multiprocessing.get_context("forkserver")
    # This file, and torch with it: else each rank would import both again.
    context.set_forkserver_preload(["bench"])
    settings = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    settings["PYTHONPATH"] = os.pathsep.join(sys.path)
    without, ready, bare = [], [], []
    with mock.patch.dict(os.environ, settings):
        bare_launch(context)
        run(add_up, world_size=RANKS)
        for _ in range(2 if quick else 20):
            bare.append(1e3 * timed(lambda: bare_launch(context)))
            with mock.patch.dict(os.environ, COURSE_LIB_STANDBY="0"):
                run(add_up, world_size=RANKS)  # ends the standby
                without.append(1e3 * timed(lambda: run(add_up, world_size=RANKS)))
            run_and_wait_for_the_standby()
            ready.append(1e3 * timed(lambda: run(add_up, world_size=RANKS)))
    yield row("run() without a standby", without, "ms", 1.3, "a bare forkserver launch", bare)
    yield row("run() with the standby ready", ready, "ms", 15)
    smaps = [Path(f"/proc/{pid}/smaps_rollup") for pid in run_and_wait_for_the_standby()]
    own = [own_mebibytes(path.read_text()) for path in smaps if path.exists()]
    if own:
        yield row("memory of a standby rank, its own", own, "MiB", 20)


def own_mebibytes(smaps: str) -> float:
    """What a process shares with no other."""
    lines = (line.split() for line in smaps.splitlines())
    return sum(int(words[1]) for words in lines if words[0].startswith("Private_")) / 1024


# ---- recording --------------------------------------------------------------------------------


def in_turns(length: int, repeats: int, on_one_core: bool) -> tuple[list[float], ...]:
    """Seconds per all_reduce in one process, in turns: in two groups that are recorded, and in two
    that are not. Two of each, as every group has connections of its own, some faster than others.
    """
    if on_one_core:  # else most of the time would be that of waking gloo's thread on another core
        core = min(os.sched_getaffinity(0))
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), {core})
    x = torch.ones(length)
    active = recorder.active_recorder
    groups = [dist.new_group(), dist.new_group()]
    recorder.stop()
    groups += [dist.new_group(), dist.new_group()]  # nothing records: these have no hooks
    seconds: tuple[list[float], ...] = ([], [], [], [])
    orders = (0, 2, 1, 3), (3, 1, 2, 0), (2, 0, 3, 1), (1, 3, 0, 2)
    for turn in range(repeats):
        x.fill_(1.0)
        for which in orders[turn % 4]:
            recorder.active_recorder = active if which < 2 else None
            seconds[which].append(timed(lambda: dist.all_reduce(x, group=groups[which])))  # noqa: B023
            recorder.stop()
    recorder.active_recorder = active
    return seconds


def recording(quick: bool) -> Iterator[str]:
    """What the recorder adds to a call: in microseconds for a tiny one, in percent for a large.

    The last row says how far the percents can be trusted: there, neither call is recorded.
    """
    one, two, three, four = run(in_turns, 1, 20 if quick else 2000, True, world_size=1).results[0]
    added = [1e6 * (a - b) for a, b in zip(one + two, three + four, strict=True)]
    yield row("recorder, added to a call at world size 1", added, "µs", 20)
    repeats = 10 if quick else 500  # twice as many pairs
    large = run(in_turns, 1_000_000, repeats, False, world_size=2, timeout=300).results[0]
    one, two, three, four = ([1e3 * t for t in seconds] for seconds in large)
    name, reference = "all_reduce of 4 MB on 2 ranks", "the same call, not recorded"
    yield row(f"{name}, recorded", one + two, "ms", 1.03, reference, three + four)
    yield row(f"{name}, in another group", four, "ms", 1.03, reference, three)


# ---- deadlocks, and watching ------------------------------------------------------------------


def both_receive() -> None:
    dist.recv(torch.empty(1), src=1 - dist.get_rank())


def deadlock() -> None:
    try:
        run(both_receive, world_size=2)
    except Deadlock:
        return
    raise AssertionError("two ranks that both receive first did not end in a Deadlock")


def telling(quick: bool) -> Iterator[str]:
    """From the start of a deadlock to its sentence."""
    yield row("deadlock told", [timed(deadlock) for _ in range(1 if quick else 3)], "s", 3)


def chatter(calls: int) -> float:
    x = torch.ones(1)
    for _ in range(calls):
        dist.all_reduce(x)
    return time.perf_counter()


def watched(calls: int) -> tuple[float, float]:
    """Seconds of this process's CPU, and of time from the function's end to that of run()."""
    start = time.process_time()
    ended = max(run(chatter, calls, world_size=2, timeout=300).results)
    return time.process_time() - start, time.perf_counter() - ended


def watching(quick: bool) -> Iterator[str]:
    """What a run that says much costs the notebook, against one that says an eighth of it."""
    many = 2_000 if quick else 40_000
    few = [watched(many // 8)[0] for _ in range(5)]
    cpu, late = watched(many)
    yield row("watching 8 times the calls on 2 ranks, CPU", [cpu], "s", 10, f"{many // 8:,}", few)
    yield row("from the function's end to the cell's", [late], "s", 0.5)


# ---- simulating -------------------------------------------------------------------------------


def chunked_ring(chunk: int) -> None:
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


def ring(ranks: int, budget: float, repeats: int) -> str:
    """A chunked ring all_reduce of 256 elements a chunk, in rendezvous, in wall-clock seconds."""
    call = lambda: simulate(chunked_ring, 256, world_size=ranks, limit=300)  # noqa: E731
    seconds = [timed(call) for _ in range(repeats)]
    return row(f"chunked ring on {ranks} simulated ranks", seconds, "s", budget)


def simulating(quick: bool) -> Iterator[str]:
    """Rings that a lesson waits for."""
    yield ring(64, 0.5, repeats=1 if quick else 3)
    if not quick:
        yield ring(256, 6.0, repeats=1)


def averaged_while_computing(steps: int) -> None:
    grads = [torch.zeros(1000) for _ in range(8)]
    for _ in range(steps):
        works = []
        for grad in grads:
            compute(1e-3)
            works.append(dist.all_reduce(grad, async_op=True))
        for work in works:
            work.wait()  # type: ignore[union-attr]


def modelled_gpus(quick: bool) -> Iterator[str]:
    """The same program on modelled GPUs and in gloo's mode, in turns."""
    for ranks, steps in ((8, 20), (64, 5), *(() if quick else ((256, 2),))):
        seconds: dict[str, list[float]] = {"gloo": [], "nccl": []}
        for _ in range(1 if quick else 5):
            for backend, taken in seconds.items():
                call = lambda: simulate(  # noqa: E731
                    averaged_while_computing, steps, world_size=ranks, backend=backend)  # noqa: B023 # fmt: skip
                taken.append(timed(call))
        name = f"{ranks} modelled GPUs, {8 * steps} all_reduces"
        yield row(name, seconds["nccl"], "s", 3, "gloo's mode", seconds["gloo"])


def simulating_many() -> Iterator[str]:
    """The largest ring."""
    yield ring(1024, 90.0, repeats=1)


# ---- checking ---------------------------------------------------------------------------------

NEVER_ENDS = "def my_share(n_items):\n    while True:\n        pass\n"


def check(exercise: str, source: str, passes: bool) -> None:
    answer = Answer(exercise, source=source, file="answer.py")
    if verdict_on(find(exercise), answer).passed is not passes:
        raise AssertionError(f"an answer to {exercise} should {'' if passes else 'not '}pass")


def checking(quick: bool) -> Iterator[str]:
    """One ``check`` of a right answer to each exercise, and of an answer that never ends."""
    import zoo

    seconds = {}
    for exercise in list(exercises())[: 1 if quick else None]:
        source = next(iter(zoo.right(exercise).values()))
        seconds[exercise] = timed(lambda: check(exercise, source, passes=True))  # noqa: B023
    slowest = max(seconds, key=seconds.__getitem__)
    yield row("check of a right answer, all exercises", list(seconds.values()), "s", 0.5)
    yield row(f"the slowest of them, {slowest}", [seconds[slowest]], "s", 2)
    if not quick:
        hung = [timed(lambda: check("my_share", NEVER_ENDS, passes=False)) for _ in range(3)]
        yield row("check of an answer that never ends", hung, "s", 6)


# ---- lessons and tests ------------------------------------------------------------------------


def comparing() -> Iterator[str]:
    """Each lesson's solution notebook under nbval, from the start of pytest to its end."""
    from nbval_run import compare

    if importlib.util.find_spec("nbval") is None:
        yield not_measured("nbval of each lesson", "no nbval here (requirements-dev.txt)")
        return
    rules = ROOT / "notebooks" / "sanitize.cfg"
    for notebook in sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            code = compare(notebook, rules, ROOT, Path(folder)).returncode
            seconds = time.perf_counter() - start
        name = f"nbval of {notebook.stem}" + (", which fails" if code else "")
        yield row(name, [seconds], "s", 45)


def tests(*arguments: str) -> str:
    """Run tests; what to add to a row's name where some fail."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    return ", some fail" if done.returncode else ""


def the_zoo() -> Iterator[str]:
    """Every answer in tests/answers, in seconds of one core."""

    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = cpu()
    failed = tests("tests/course_exercises/test_zoo.py")
    yield row(f"the zoo, CPU{failed}", [cpu() - before], "s", 150)


def testing() -> Iterator[str]:
    """All tests, as ``make test`` runs them once everything is installed."""
    start = time.perf_counter()
    failed = tests("-n", "2")
    yield row(f"make test{failed}", [time.perf_counter() - start], "s", 480)


BENCHES = (launching, recording, telling, watching, simulating, modelled_gpus, checking)
LONG: dict[str, Callable[[], Iterator[str]]] = {
    "chunked ring on 1024 simulated ranks": simulating_many,
    "nbval of each lesson": comparing,
    "the zoo, CPU": the_zoo,
    "make test": testing,
}

if __name__ == "__main__":
    sys.exit(main())
