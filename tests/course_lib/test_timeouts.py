"""What gloo, torch's store and NCCL's watchdog say, and what it makes of a failure: a cause of its
own, a wait that ran out of time, or a connection that was lost.
"""

from __future__ import annotations

import time
import traceback
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course_lib import run, simulate
from course_lib.diagnosis.failure import LateRank, RankOutcome, root_cause
from course_lib.errors import RankFailed, expect

TCP = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/"
CLOSED = (
    f"{TCP}pair.cc:561] Connection closed by peer [127.0.0.1]:16300. This is typically caused by a "
    "remote worker crashing. Check the logs of the remote worker before reporting an error."
)
RESET = f"{TCP}pair.cc:545] Read error [127.0.0.1]:22416: Connection reset by peer. This is …"
WAITED = f"{TCP}unbound_buffer.cc:129] Timed out waiting 2000ms for send operation to complete"


# As torch 2.15.0 raises them; those of gloo and of the store were provoked, NCCL's are from its
# sources (ProcessGroupNCCL.cpp, nccl2/WorkNCCL.cpp) and public reports.
MONITORED = "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 1000 ms\n Original exception: \n"
TEXTS = {
    ("timed out", "RuntimeError"): (
        WAITED,
        "Operation timed out!",
        "Timed out waiting 0:00:02 for the operation to complete",
        MONITORED + WAITED,
        "Wait timeout",
    ),
    ("timed out", "DistStoreError"): (
        "wait timeout after 2000ms, keys: /default_pg/0//1//cpu//0/0",
        "Timed out after 3 seconds waiting for clients. 1/3 clients joined.",
        "Socket Timeout",
    ),
    ("timed out", "DistNetworkError"): (
        "The client socket has timed out after 2000ms while trying to connect to (127.0.0.1)",
    ),
    ("timed out", "DistBackendError"): (
        "[PG ID 0 PG GUID 0 Rank 1] Watchdog caught collective operation timeout: WorkNCCL(",
        "NCCL timeout in: /pytorch/NCCLUtils.cpp:102, unhandled",
    ),
    ("lost", "RuntimeError"): (
        CLOSED,
        f"{TCP}pair.cc:545] Read error [10.0.0.1]:2: Connection timed out",
        f"{TCP}pair.cc:444] writev [127.0.0.1]:2: Broken pipe",
        MONITORED + RESET,
        f"Gloo connectFullMesh failed with {TCP}pair.cc:144] no error",
    ),
    ("lost", "DistNetworkError"): (
        "failed to recv, got 0 bytes. Connection was likely closed. Did the server crash?",
    ),
    ("lost", "DistBackendError"): (
        "NCCL communicator was aborted on rank 3.",
        "NCCL error in: NCCLUtils.cpp:77\nncclRemoteError: A call failed due to a network error",
    ),
    ("own", "RuntimeError"): (
        f"[enforce fail at {TCP[1:]}pair.cc:809] state_ >= CONNECTED. 1 vs 4. Pair is not "
        "connected ([127.0.0.1]:26023$0 <--> [none])",
        "DataLoader timed out after 5 seconds",
    ),
    ("own", "ConnectionResetError"): ("[Errno 104] Connection reset by peer",),
    ("own", "ReadTimeout"): ("HTTPSConnectionPool(host='x', port=443): Read timed out.",),
}


def outcome(rank: int, text: str, at: float, kind: str = "RuntimeError") -> RankOutcome:
    return RankOutcome(rank, "raised", at, kind, text)


@pytest.mark.parametrize(("what", "kind"), TEXTS)
def test_each_text_is_one_of_three_things(what: str, kind: str):
    for text in TEXTS[what, kind]:
        one = outcome(1, text, 0.0, kind)
        assert (one.timed_out, one.lost_its_peer) == (what == "timed out", what == "lost"), text
        assert one.is_victim == (what != "own"), text


def test_a_cause_comes_before_a_timeout_and_that_before_lost_connections():
    lost, late = outcome(0, CLOSED, 2.0), outcome(2, WAITED, 2.1)
    own = outcome(1, "a bad sample", 9.0, "ValueError")
    assert root_cause([lost, late]).rank == 2
    error = root_cause([lost, late, own])
    assert error.rank == 1
    assert "ranks 0 and 2 fell over because of it." in str(error)


def test_no_text_speaks_for_another_rank():
    """They differ in more than a number; those that differ in numbers alone say whose they are."""
    error = root_cause([outcome(r, f"no key {'ab'[r]}", 1.0 + r, "KeyError") for r in (0, 1)])
    assert str(error).splitlines() == ["rank 0 raised KeyError: no key a", "rank 1 failed, too."]
    error = root_cause([outcome(r, f"sample {r} is bad", 1.0, "ValueError") for r in (0, 1)])
    assert str(error) == "ranks 0 and 1 raised ValueError, rank 0 in these words: sample 0 is bad"


def test_many_late_ranks_that_stand_alike_are_told_of_together():
    waits = outcome(1, WAITED, 2.0)
    waits.late = [LateRank(r, "had returned.") for r in range(2, 1024)] + [
        LateRank(0, made_after=2)
    ]
    told = str(root_cause([waits])).splitlines()
    assert "1022" in told[1] or "1016 more" in told[1] or "2–1023" in told[1]
    assert told[1].endswith("had not made this call yet; they had returned.")
    assert told[2] == "rank 0 made this call 2.0 s too late."


# ---- for real ------------------------------------------------------------------------------------


def save() -> None:
    time.sleep(3.5)


def trains(seconds: float, saves: int = 0) -> None:
    group = dist.new_group(timeout=timedelta(seconds=seconds))
    dist.all_reduce(torch.ones(2), group=group)
    if dist.get_rank() == saves:
        save()
    dist.all_reduce(torch.ones(2), group=group)


def meets(absent: int) -> None:
    dist.barrier()
    if dist.get_rank() == absent:
        save()
    dist.monitored_barrier(timeout=timedelta(seconds=1))


def waits_for_a_message() -> None:
    dist.barrier()
    group = dist.new_group(timeout=timedelta(seconds=1))
    if dist.get_rank() == 0:
        save()
        dist.send(torch.ones(1), 1, group=group)
    if dist.get_rank() == 1:
        dist.recv(torch.ones(1), 0, group=group)


def makes_a_group() -> None:
    dist.barrier()
    if dist.get_rank() == 0:
        save()
    dist.new_group([0, 1, 2], timeout=timedelta(seconds=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "function", "late"),
    [
        (run, partial(trains, 1), 0),
        (simulate, partial(trains, 1, 2), 2),
        (run, partial(meets, 2), 2),
        (run, waits_for_a_message, 0),
        (run, makes_a_group, 0),
    ],
)
def test_who_did_not_come_is_said_with_the_line(engine, function, late: int):
    with expect(RankFailed) as caught:
        engine(function, world_size=3)
    assert f"rank {late} had not made this call yet; it stood at:" in str(caught.error)
    assert "time.sleep(3.5)" in str(caught.error)
    assert caught.error.rank != late


def speaks_to_itself(call) -> None:
    if dist.get_rank() == 1:
        call(torch.ones(2), 1).wait()
    dist.barrier()


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "call"), [(run, dist.isend), (simulate, dist.irecv)])
def test_a_message_to_oneself_is_called_that(engine, call):
    said = f"rank 1 cannot {call.__name__[1:]} to or from itself"
    with pytest.raises(RankFailed, match=said) as caught:
        engine(speaks_to_itself, call, world_size=2)
    assert "enforce fail" not in str(caught.value)


def raises_from_elsewhere() -> None:
    try:
        save(1)
    except TypeError:
        told = traceback.format_exc()
    raise RuntimeError(f"Caught TypeError in a worker.\nOriginal {told}")


def test_of_a_traceback_in_a_message_the_readers_lines_and_the_end_are_shown():
    """As those of a loader's worker and of a distributed checkpoint have it."""
    with pytest.raises(RankFailed) as caught:
        simulate(raises_from_elsewhere, world_size=2)
    told = str(caught.value).splitlines()
    assert told[0].endswith("raised RuntimeError: Caught TypeError in a worker.")
    assert "save(1)" in told[1]
    assert told[2].startswith("TypeError: save() takes 0 positional arguments")
    assert "Traceback" not in str(caught.value)


def test_a_restart_that_meets_old_addresses_is_told_the_variable():
    text = "Gloo connectFullMesh failed with [pair.cc:144] no error"
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in str(root_cause([outcome(0, text, 1.0)]))
