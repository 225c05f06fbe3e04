"""``make bench`` finds what it measures. All of it: tests/soak. No test asks how long it took."""

from __future__ import annotations

import re
from pathlib import Path


def test_a_row_has_a_median_a_spread_a_verdict_and_what_is_allowed(root: Path, monkeypatch):
    monkeypatch.syspath_prepend(root / "tools")
    import bench

    [row] = bench.simulating(quick=True)
    number = r"[\d.e-]+"
    pattern = rf"chunked ring on 64 simulated ranks +{number} s +± {number} +(kept|NOT KEPT)"
    assert re.match(pattern + r" +at most 0\.5 s \(n=1\)$", row), row
