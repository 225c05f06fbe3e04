"""By how much limits are stretched on a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_staff.grading import load_factor


@pytest.mark.parametrize(
    ("now", "lately", "longer"),
    [(0, 0.0, 1.0), (4, 4.0, 1.0), (0, 12.0, 3.0), (12, 0.0, 3.0), (0, 900.0, 10.0)],
)
def test_seconds_are_stretched_by_how_busy_the_machine_is_or_was(
    now: int, lately: float, longer: float, monkeypatch, tmp_path: Path
):
    """A machine of four processors, on which so many threads run now and ran in the last minute."""
    file = tmp_path / "loadavg"
    file.write_text(f"{lately} 0.00 0.00 {now + 1}/300 4711\n")
    monkeypatch.setattr(load_factor, "_RUNNABLE", file)
    monkeypatch.setattr(load_factor.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(load_factor.os, "getloadavg", lambda: (lately, 0.0, 0.0))
    assert load_factor.load_factor() == longer
