"""``make bench`` finds what it measures. All of it: tests/soak. No test asks how long it took."""

from __future__ import annotations

import re
from pathlib import Path


def test_a_row_has_a_median_a_spread_a_verdict_and_what_is_allowed(root: Path, monkeypatch):
    monkeypatch.syspath_prepend(root / "tools")
    import bench

    rows = [*bench.simulating(quick=True), *bench.checking(quick=True)]
    number = r"[\d.e-]+"
    pattern = rf".{{50}} +{number} s +± {number} +(kept|NOT KEPT) +at most {number} s \(n=1\)"
    assert all(re.fullmatch(pattern, row) for row in rows), rows
