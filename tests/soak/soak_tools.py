"""What measures runs from its first line to its last: the benchmark, and the report of a machine
with GPUs, as far as one without them can tell."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import test_gpu_report

ROOT = Path(__file__).resolve().parents[2]

# What each budget is called, and what is allowed there.
BUDGETS = {
    "run() without a standby": "1.3 ×",
    "run() with the standby ready": "15 ms",
    "memory of a standby rank, its own": "20 MiB",
    "recorder, added to a call at world size 1": "20 µs",
    "all_reduce of 4 MB on 2 ranks, recorded": "1.03 ×",
    "all_reduce of 4 MB on 2 ranks, in another group": "1.03 ×",
    "deadlock told": "3 s",
    "watching 8 times the calls on 2 ranks, CPU": "10 ×",
    "from the function's end to the cell's": "0.5 s",
    "chunked ring on 64 simulated ranks": "0.5 s",
    "check of a right answer, all exercises": "0.5 s",
}


def test_every_budget_has_a_row():
    command = [sys.executable, ROOT / "tools" / "bench.py", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = {line[:50].rstrip(): line[50:].strip() for line in done.stdout.splitlines()}
    for what, allowed in BUDGETS.items():
        assert re.search(rf"\b(kept|NOT KEPT) .*at most {re.escape(allowed)} \(n=", rows[what])
    assert any(what.startswith("the slowest of them, ") for what in rows)
    later = [what for what, text in rows.items() if text == "not measured: minutes; see --all"]
    assert later == [
        "chunked ring on 1024 simulated ranks",
        "nbval of each lesson",
        "the zoo, CPU",
        "make test",
    ]


def test_a_rehearsal_of_the_gpu_report_runs_every_part(tmp_path: Path, monkeypatch):
    outcomes = test_gpu_report.rehearsed(tmp_path, monkeypatch)
    assert set(outcomes.values()) == {"passed", "not tried"}
    assert outcomes["digits, ranks: 2"] == "passed"
