"""Each simulated rank has to itself what a process has to itself, and nothing of it stays."""

from __future__ import annotations

import functools
import io
import logging
import os
import random
import signal
import sys
import threading
import time
import timeit
from typing import ClassVar

import numpy
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import benchmark as torch_benchmark

from course_lib import CourseError, RankFailed, compute, run
from course_sim import engine, simulate

COUNTER = [0]


class Memory:
    seen: ClassVar[list[int]] = []


@functools.cache
def kept():
    return []


def touch_globals(argument):
    rank = dist.get_rank()
    COUNTER[0] += rank + 1
    Memory.seen.append(rank)
    argument.append(rank)
    kept().append(rank)
    dist.barrier()
    return COUNTER[0], list(Memory.seen), list(argument), list(kept())


def test_globals_classes_and_arguments_are_private():
    argument = [7]
    sim = simulate(touch_globals, argument, world_size=3)
    assert sim.results == [(r + 1, [r], [7, r], [r]) for r in range(3)]
    assert COUNTER == [0] and Memory.seen == [] and argument == [7] and kept() == []


def draw():
    """Draws on both sides of a change of hands."""
    out = []
    for _ in range(3):
        plain = torch.rand(1).item(), random.random(), float(numpy.random.rand())
        normal = torch.randn(1).item(), random.gauss(0, 1), float(numpy.random.randn())
        out.append((*plain, *normal))
        dist.barrier()
    return out


def test_random_numbers_are_those_of_real_ranks():
    assert simulate(draw, world_size=2).results == run(draw, world_size=2).results


def test_the_callers_generators_and_environment_are_left_alone():
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
    want = torch.rand(1), random.random(), numpy.random.rand()
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
    before = dict(os.environ)
    assert simulate(environment, world_size=2).results == [("0", "0", "2"), ("1", "1", "2")]
    assert (torch.rand(1), random.random(), numpy.random.rand()) == want
    assert dict(os.environ) == before
    assert "SIMULATED_NAME" not in os.popen("env").read()


def environment():
    draw()
    os.environ["SIMULATED_NAME"] = str(dist.get_rank())
    os.environ.pop("HOME", None)
    dist.barrier()
    assert "HOME" not in os.environ
    return tuple(os.environ[name] for name in ("SIMULATED_NAME", "RANK", "WORLD_SIZE"))


def speak():
    print("one from", dist.get_rank())
    dist.barrier()
    print("two", file=sys.stderr)
    if dist.get_rank() == 1:
        print("x" * 200_000)


def test_output_is_shown_by_rank_and_cut(capsys):
    sim = simulate(speak, world_size=2)
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[:4] == ["[0] one from 0", "[0] two", "[1] one from 1", "[1] two"]
    assert "characters shown" in lines[-1] and len(shown) < 110_000
    assert sim.output == shown


def fail():
    raise KeyError(dist.get_rank())


def test_threads_that_are_no_ranks_see_the_originals(monkeypatch):
    """See Note [Replaced in the live kernel]: a kernel's own threads go on meanwhile."""
    began, done, seen = threading.Event(), threading.Event(), []
    handler = signal.getsignal(signal.SIGINT)

    def kernel():
        began.wait(30)
        inner = threading.Thread(target=seen.append, args=("started",))
        inner.start()
        inner.join()
        seen.append(signal.getsignal(signal.SIGINT) is handler and time.time() > 1e9)
        time.sleep(0.01)
        done.set()

    def live(self, rank, original=engine.Execution.live):
        began.set()
        done.wait(30)
        original(self, rank)

    monkeypatch.setattr(engine.Execution, "live", live)
    thread = threading.Thread(target=kernel)
    thread.start()
    assert simulate(dist.get_rank, world_size=1).results == [0]
    thread.join()
    assert seen == ["started", True]


def test_nothing_stays_replaced():
    names = [
        (time, "sleep"),
        (time, "time"),
        (os, "fork"),
        (random, "random"),
        (sys, "stdout"),
        (numpy.random, "rand"),
        (torch.cuda, "_lazy_init"),
    ]
    before = [getattr(o, n) for o, n in names], torch.get_num_threads()
    with pytest.raises(RankFailed):
        simulate(fail, world_size=2)
    assert ([getattr(o, n) for o, n in names], torch.get_num_threads()) == before


@pytest.mark.slow
def test_torchs_settings_and_the_folder_are_each_ranks_own(tmp_path):
    def settings():
        return (
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            str(torch.get_default_device()),
            repr(torch.tensor(1 / 3, device="cpu")),
            os.getcwd(),
        )

    def change(folder):
        odd = dist.get_rank() == 1
        before = settings()
        os.chdir(folder if odd else "/")
        torch.set_default_dtype(torch.float64 if odd else torch.float16)
        torch.use_deterministic_algorithms(odd, warn_only=True)
        torch.set_grad_enabled(odd)
        torch.set_autocast_enabled("cpu", odd)
        torch.set_default_device("meta" if odd else "cpu")
        torch.set_printoptions(precision=2 + dist.get_rank())
        mine = settings()
        for _ in range(2):
            dist.all_reduce(torch.ones(1, device="cpu", dtype=torch.float32))
            assert settings() == mine
        return before, mine

    before = settings()
    real, simulated = (how(change, str(tmp_path), world_size=3).results for how in (run, simulate))
    assert simulated == real
    assert settings() == before


def measure():
    """How much the same takes by every clock there is."""
    out = []
    clocks = [
        timeit.default_timer,
        time.process_time,
        time.thread_time,
        time.time,
        time.monotonic,
        lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
        lambda: time.perf_counter_ns() / 1e9,
    ]
    for clock in clocks:
        start = clock()
        compute(20.0)
        time.sleep(5.0)
        out.append(round(clock() - start, 6))
    timer = torch_benchmark.Timer("wait()", globals={"wait": lambda: compute(25.0)})
    return [*out, timeit.timeit(lambda: compute(25.0), number=2) / 2, timer.timeit(2).mean]


def test_every_clock_is_virtual():
    begin = time.perf_counter()
    assert simulate(measure, world_size=2).results == [pytest.approx([25.0] * 9, abs=2e-6)] * 2
    assert time.perf_counter() - begin < 9 * 25.0


def handles_signals():
    first = signal.signal(signal.SIGTERM, print)
    return first == signal.SIG_DFL, signal.getsignal(signal.SIGTERM) is print


def test_a_handler_of_signals_may_be_set_and_does_not_stay():
    before = signal.getsignal(signal.SIGTERM)
    assert simulate(handles_signals, world_size=2).results == [(True, True)] * 2
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "send",
    [lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: signal.raise_signal(signal.SIGTERM)],
)
def test_signals_are_refused_as_what_they_are(send):
    with pytest.raises(RankFailed, match=r"a simulated rank gets and sends no signals: use run"):
        simulate(send, world_size=2)


LOG = logging.getLogger("a_script")


def logs():
    rank = dist.get_rank()
    LOG.info("as the caller has set it up")
    logging.basicConfig(level=logging.INFO, format=f"%(levelname)s of {rank}: %(message)s")
    logging.getLogger().setLevel(logging.INFO if rank else logging.ERROR)
    dist.barrier()
    logging.getLogger("b").info("from rank %d", rank)
    logging.getLogger("b").error("an error")
    if rank:
        logging.disable(logging.CRITICAL)
    dist.barrier()
    logging.getLogger("b").critical("the last")


LOGGED = """\
[0] caller: as the caller has set it up
[0] ERROR of 0: an error
[0] CRITICAL of 0: the last
[1] caller: as the caller has set it up
[1] INFO of 1: from rank 1
[1] ERROR of 1: an error
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", [run, simulate])
def test_logging_is_each_ranks_own_and_begins_as_the_caller_has_it(engine, monkeypatch):
    root = logging.getLogger()
    before = list(root.handlers), root.level, root.manager.disable
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("caller: %(message)s"))
    for name, value in (("handlers", [handler]), ("level", logging.INFO), ("propagate", False)):
        monkeypatch.setattr(LOG, name, value)
    LOG._cache.clear()
    monkeypatch.setattr(root, "handlers", [])  # as in a notebook; pytest has some of its own
    lines = engine(logs, world_size=2).output.splitlines(True)
    # torch may have something to say of the machine's compiler
    assert "".join(line for line in lines if "cpp_extension" not in line) == LOGGED
    assert root.handlers == [] and LOG.handlers == [handler]
    monkeypatch.undo()
    assert (list(root.handlers), root.level, root.manager.disable) == before


@pytest.mark.parametrize("engine", [run, simulate])
@pytest.mark.parametrize("asks", [input, breakpoint])
def test_a_rank_has_no_keyboard(engine, asks):
    with pytest.raises(RankFailed, match="a rank has no keyboard: pass what it asks for"):
        engine(lambda: asks(), world_size=2)


async def speaks_async():
    return 1


def test_an_async_def_is_refused_in_a_line():
    with pytest.raises(CourseError, match=r"speaks_async is an async def: .*asyncio.run\(speaks"):
        simulate(speaks_async, world_size=2)


def spawns():
    torch.multiprocessing.spawn(lambda rank: None, nprocs=2)


@pytest.mark.parametrize("engine", [run, simulate])
def test_a_rank_that_would_spawn_ranks_is_told_what_to_call(engine):
    with pytest.raises(RankFailed, match=r"the ranks are there already, .*RANK.* init=False"):
        engine(spawns, world_size=2)


def asks_for_a_gpu():
    return (
        torch.cuda.is_available(),
        torch.cuda.device_count(),
        torch.accelerator.is_available(),
        torch.accelerator.current_accelerator(),
    )


def test_a_rank_that_asks_whether_there_is_a_gpu_is_told_that_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert simulate(asks_for_a_gpu, world_size=2).results == [(False, 0, False, None)] * 2


@pytest.mark.parametrize("engine", [run, simulate])
def test_output_that_the_stream_cannot_show_costs_no_results(engine, monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii", write_through=True))
    assert engine(lambda: print("\u00fc \u2713") or 7, world_size=2).results == [7, 7]
    assert shown.getvalue() == b"[0] \\xfc \\u2713\n[1] \\xfc \\u2713\n"


def test_no_rank_leaves_the_module_behind_whose_forward_it_was_in():
    """torch.compile would take the caller's functions for parts of that module."""

    def forward():
        layer = nn.Linear(2, 2)
        layer.register_forward_hook(lambda *_: time.sleep(1e-3 * dist.get_rank()))
        DistributedDataParallel(layer)(torch.ones(1, 2))

    simulate(forward, world_size=3)
    assert DistributedDataParallel._active_ddp_module is None
