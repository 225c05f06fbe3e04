"""How long is waited on a busy machine."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from course_lib import load_factor


@pytest.fixture
def machine(monkeypatch, tmp_path: Path):
    """A machine of four processors, on which so many threads run now and ran in the last minute."""

    def of(now: int, lately: float) -> None:
        file = tmp_path / "loadavg"
        file.write_text(f"{lately} 0.00 0.00 {now + 1}/300 4711\n")
        monkeypatch.setattr(load_factor, "_RUNNABLE", file)
        monkeypatch.setattr(load_factor.os, "cpu_count", lambda: 4)
        monkeypatch.setattr(load_factor.os, "getloadavg", lambda: (lately, 0.0, 0.0))

    return of


@pytest.mark.parametrize(("now", "share"), [(0, 1), (4, 1), (8, 1 / 2), (12, 1 / 3), (900, 1 / 10)])
def test_who_wants_to_compute_gets_a_fair_share(now: int, share: float, machine) -> None:
    machine(now, 0.0)
    assert load_factor.share() == share


def test_what_is_waited_for_is_no_reason_to_wait_longer(machine) -> None:
    machine(58, 0.0)
    with load_factor.not_counting(lambda: 50):
        assert load_factor.share() == 1 / 2
    assert load_factor.share() == 1 / 10


@pytest.mark.parametrize(
    ("now", "lately", "longer"),
    [(0, 0.0, 1.0), (4, 4.0, 1.0), (0, 12.0, 3.0), (12, 0.0, 3.0), (0, 900.0, 10.0)],
)
def test_seconds_are_stretched_by_how_busy_the_machine_is_or_was(now, lately, longer, machine):
    machine(now, lately)
    assert load_factor.load_factor() == longer


def test_the_load_is_asked_where_threads_cannot_be_counted(machine, monkeypatch, tmp_path) -> None:
    machine(0, 8.0)
    monkeypatch.setattr(load_factor, "_RUNNABLE", tmp_path / "nothing")
    assert load_factor.share() == 1 / 2


def test_seconds_pass_more_slowly_on_a_busy_machine(machine) -> None:
    machine(16, 0.0)
    start = time.monotonic()
    assert not load_factor.wait(threading.Event(), 0.1)
    assert time.monotonic() - start >= 0.4


def test_waiting_ends_with_the_event(machine) -> None:
    machine(0, 0.0)
    event = threading.Event()
    event.set()
    assert load_factor.wait(event, 100.0)
    assert load_factor.wait(event, 0.0)
