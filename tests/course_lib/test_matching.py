"""Who meets whom, whichever rank is heard first, and how much work it is to find out."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import run
from course_lib.diagnosis import mismatch
from course_lib.diagnosis.matching import CallMatcher
from course_lib.recording import stuck_ranks as standing
from course_lib.recording.rank_state import RankState
from course_lib.trace import Event

WORLD = {"0": (0, 1, 2)}


def call(rank: int, seq: int, op: str, peer: int | None = None, n: int = 1) -> Event:
    what = rank, op, peer, "0", 4 * n, "float32", (n,), 0.0, None, None
    return Event(*what, bytes_in=4 * n, bytes_out=4 * n, seq=seq)


def matcher_of(*events: Event) -> CallMatcher:
    matcher = CallMatcher()
    matcher.groups = dict(WORLD)
    for event in events:
        matcher.add(event)
    return matcher


@pytest.mark.slow
def test_each_pair_is_compared_once_however_often_one_looks(monkeypatch: pytest.MonkeyPatch):
    def chatter() -> None:
        x = torch.ones(1)
        for _ in range(1000):
            dist.all_reduce(x)
            dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)

    compared, looked = [], []
    between, read = mismatch.between, RankState.read_log
    monkeypatch.setattr(mismatch, "between", lambda a, b: compared.append(a) or between(a, b))
    monkeypatch.setattr(RankState, "read_log", lambda self: looked.append(self) or read(self))
    monkeypatch.setattr(standing, "LOOK_SECONDS", 0.01)
    assert len(run(chatter, world_size=2).trace.events) == 4000
    assert len(looked) > 2 * 10
    assert len(compared) == 2000


OPS = st.sampled_from(["all_reduce", "barrier", "send", "recv"])
CALLS = st.tuples(st.integers(0, 2), OPS, st.integers(1, 2), st.sampled_from([1, 1, 1, 2]))


@given(st.lists(CALLS, max_size=24), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_it_makes_no_difference_which_rank_is_heard_first(
    calls: list[tuple[int, str, int, int]], chance: random.Random
):
    by_rank: dict[int, list[Event]] = {0: [], 1: [], 2: []}
    for rank, op, step, n in calls:
        peer = (rank + step) % 3 if op in ("send", "recv") else None
        by_rank[rank].append(call(rank, len(by_rank[rank]), op, peer, n))
    one_by_one = matcher_of(*by_rank[0], *by_rank[1], *by_rank[2])
    ranks = [rank for rank, events in by_rank.items() for _ in events]
    chance.shuffle(ranks)
    lines = {rank: iter(events) for rank, events in by_rank.items()}
    mixed = matcher_of(*(next(lines[rank]) for rank in ranks))
    assert str(mixed.mismatch()) == str(one_by_one.mismatch())
    for events in by_rank.values():
        assert [*map(mixed.find_missing, events)] == [*map(one_by_one.find_missing, events)]


def test_a_recv_from_any_source_takes_its_place_when_its_source_is_known():
    """The second message fits the second recv: only the first could have been taken by another."""
    any_source, second = call(1, 0, "recv", None, 1), call(1, 1, "recv", 0, 2)
    sends = call(0, 0, "send", 1, 1), call(0, 1, "send", 1, 2)
    matcher = matcher_of(any_source, second, *sends)
    assert matcher.mismatch() is None
    object.__setattr__(any_source, "peer", 0)
    matcher.settle_source(any_source)
    assert matcher.mismatch() is None
    assert [*map(matcher.find_missing, (any_source, second, *sends))] == [()] * 4
    matcher.add(call(1, 2, "recv", 0, 9))
    matcher.add(call(0, 2, "send", 1, 8))
    assert "8 elements and 9 elements" in str(matcher.mismatch())


def test_a_call_that_was_withdrawn_meets_nobody():
    wrong, right = call(0, 0, "barrier"), call(0, 1, "all_reduce")
    others = call(1, 0, "all_reduce"), call(2, 0, "all_reduce")
    matcher = matcher_of(wrong, *others, right)
    assert "on the op: barrier and all_reduce" in str(matcher.mismatch())
    matcher.withdraw(wrong)
    assert matcher.mismatch() is None
    assert matcher.find_missing(right) == ()
