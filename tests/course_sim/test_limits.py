"""Bad programs and bad arguments: a clear error, in time, and no process group is left."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course_lib import CourseError, Hang, RankFailed
from course_sim import engine, scheduler, simulate


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = threading.active_count()
    yield
    assert not dist.is_initialized()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def nothing():
    return dist.get_rank()


def loop():
    dist.barrier()
    while True:
        pass


def test_a_function_that_never_returns_is_stopped():
    with pytest.raises(Hang, match=r"did not return within 0\.5 s") as caught:
        simulate(loop, world_size=2, limit=0.5)
    assert caught.value.waits[0].line.function == "loop"


def swallows_what_ends_it():
    for _ in range(2):
        with contextlib.suppress(BaseException):
            loop()
    loop()


def test_a_function_that_swallows_what_ends_it_is_stopped():
    """See Note [Exceptions from outside] in scheduler.py: one is not enough."""
    with pytest.raises(Hang, match=r"did not return within 0\.5 s"):
        simulate(swallows_what_ends_it, world_size=1, limit=0.5)
    assert simulate(nothing, world_size=2).results == [0, 1]


def test_seconds_are_those_of_the_processor(monkeypatch):
    """As where a busy machine lets the ranks compute for half of the time."""
    usual = time.process_time
    monkeypatch.setattr(scheduler, "LEAST_SHARE", 0.0)
    monkeypatch.setattr(scheduler.time, "process_time", lambda: usual() / 2)
    begin = usual()
    with pytest.raises(Hang):
        simulate(loop, world_size=1, limit=0.5)
    assert usual() - begin >= 0.9


STUCK, RELEASE = os.pipe()  # globals travel by value: the simulated rank reads the same pipe


def stuck_in_c():
    os.read(STUCK, 1)


@pytest.mark.slow
def test_a_function_stuck_in_c_code_is_named_and_left_behind():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with pytest.raises(Hang, match="inside compiled code") as caught:
        simulate(stuck_in_c, world_size=2, limit=0.5)
    assert caught.value.waits[0].line.source == "os.read(STUCK, 1)"
    assert torch.equal(torch.get_rng_state(), state)
    assert simulate(nothing, world_size=2).results == [0, 1]  # the next one works
    os.write(RELEASE, b".")


@pytest.fixture
def own_group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize(("program", "n", "error"), [("nothing", 3, None), ("loop", 2, Hang)])
def test_the_default_process_group_is_as_it_was_whatever_happens(own_group, program, n, error):
    with pytest.raises(error) if error else contextlib.nullcontext():
        simulate(globals()[program], world_size=n, limit=0.5)
    assert dist.group.WORLD is own_group and dist.get_world_size() == 1
    assert c10d._resolve_process_group(own_group.group_name) is own_group
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [1.0, 1.0]


class Library:
    """Stands for a module that all ranks share: it keeps what is put here."""

    group: Any = None
    work: Any = None


sys.modules["library"] = Library  # type: ignore[assignment]


def keeps():
    import library

    library.group = dist.group.WORLD
    library.work = dist.all_reduce(torch.ones(1), async_op=True)
    library.work.wait()


def keeps_on_rank_0():
    if dist.get_rank() == 0:
        keeps()
    else:
        dist.all_reduce(torch.ones(1))


def sums_in_what_was_kept():
    import library

    dist.all_reduce(torch.ones(1), group=library.group)


def uses_the_group_of_another():
    import library

    keeps_on_rank_0()
    if dist.get_rank() == 1:
        library.group.barrier()


def test_what_outlived_its_simulation_is_refused():
    simulate(keeps, world_size=2)
    with pytest.raises(RankFailed, match="this process group or Work belongs to a simulation that"):
        simulate(sums_in_what_was_kept, world_size=2)

    for call in (Library.work.wait, lambda: dist.broadcast(torch.ones(1), 0, group=Library.group)):
        with pytest.raises(CourseError, match="a simulation that is over"):
            call()


def test_a_group_of_another_rank_is_refused():
    with pytest.raises(RankFailed, match="rank 1 uses a process group or Work of rank 0"):
        simulate(uses_the_group_of_another, world_size=2)


def forks():
    os.fork()


def test_a_rank_that_starts_processes_is_refused():
    with pytest.raises(RankFailed, match=r"cannot start or end processes: use run\(\)"):
        simulate(forks, world_size=2)
    subprocess.run(["true"], check=True)


def communicates_in_a_thread():
    thread = threading.Thread(target=dist.barrier)
    thread.start()
    thread.join()


def test_a_rank_that_starts_threads_is_refused():
    with pytest.raises(RankFailed, match=r"cannot start threads: use run\(\)"):
        simulate(communicates_in_a_thread, world_size=2)


def uses_cuda():
    torch.ones(1, device="cuda")


def test_a_rank_that_uses_cuda_is_refused():
    with pytest.raises(RankFailed, match=r"a simulated rank has no GPU: use course_lib.device\(\)"):
        simulate(uses_cuda, world_size=2)


def simulates():
    simulate(nothing, world_size=2)


def test_a_simulation_inside_a_simulation_is_refused():
    with pytest.raises(RankFailed, match="cannot simulate a world of its own"):
        simulate(simulates, world_size=2)


def receives_from_minus_one():
    dist.recv(torch.ones(1), dist.get_rank() - 1)


def test_a_peer_that_does_not_exist_is_named():
    """gloo's recv from rank −1 never returns; the simulator does not take it for "anybody"."""
    with pytest.raises(RankFailed, match="there is no rank -1: ranks are 0 to 1"):
        simulate(receives_from_minus_one, world_size=2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"world_size": 0}, "world_size=0"),
        ({"world_size": 10**7}, "this machine can hold"),
        ({"network": "fast"}, "network='fast'"),
    ],
)
def test_bad_arguments_get_one_line(words, text):
    with pytest.raises(CourseError, match=text) as caught:
        simulate(nothing, **({"world_size": 2} | words))
    assert "\n" not in str(caught.value)


def test_a_system_without_threads_says_how_many_ranks_it_has(monkeypatch):
    start = scheduler._start

    def start_some(thread):
        if thread.name == "rank 5":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(scheduler, "_start", start_some)
    with pytest.raises(CourseError, match="simulate at most 5 ranks here"):
        simulate(nothing, world_size=9)


def test_a_torch_that_cannot_simulate_says_so_in_one_line(monkeypatch):
    monkeypatch.delattr(torch._C._distributed_c10d, "_set_thread_isolation_mode")
    with pytest.raises(CourseError, match="_set_thread_isolation_mode is not there") as caught:
        simulate(nothing, world_size=2)
    assert "\n" not in str(caught.value)


def test_whoever_stops_it_reads_a_sentence(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "execute", stop)
    with pytest.raises(KeyboardInterrupt, match=r"simulate\(\) was stopped") as caught:
        simulate(dist.get_rank, world_size=2)
    assert len(caught.value._render_traceback_()) == 1
