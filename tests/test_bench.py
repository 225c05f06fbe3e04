"""``bench`` measures every budget, and says so where it cannot. No test asks how long it took."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from course_lib import bench

# What each budget is called, and what is promised there: how large, in which unit.
BUDGETS = {
    "run() without a spare world": ("ms", 1.3),
    "run() with the spare ready": ("ms", 0.15),
    "run() with the spare ready, absolute": ("ms", 15),
    "memory of a spare rank, its own": ("MiB", 20),
    "recorder, added to a call at world size 1": ("µs", 20),
    "all_reduce of 4 MB on 2 ranks, recorded": ("ms", 1.03),
    "all_reduce of 4 MB on 2 ranks, in another group": ("ms", 1.03),
    "deadlock told": ("s", 3),
    "watching 4,000 calls on 2 ranks, CPU": ("s", 10),
    "from the function's end to the cell's": ("s", 0.5),
    "chunked ring on 64 simulated ranks": ("s", 0.5),
    "chunked ring on 256 simulated ranks": ("s", 6),
    "check of a right answer, all exercises": ("s", 3),
    "check of an answer that never ends": ("s", 10),
}


# All of it, but what takes longest: other tests run answers that never end.
QUICKER = """
from course_lib import __main__, bench
bench._never_ends = lambda: None
raise SystemExit(__main__.main(["bench", "--quick", "--json"]))
"""


@pytest.mark.slow
def test_every_budget_has_a_row(root: Path):
    command = [sys.executable, "-c", QUICKER]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert not BUDGETS.keys() - rows.keys()
    for what, (unit, most) in BUDGETS.items():
        row = rows[what]
        fixed = row["reference_value"] if row["at_most"] == 1 else 1
        assert (row["unit"], row["at_most"] * fixed) == (unit, pytest.approx(most))
        assert row["repeats"] >= 1
        assert row["spread"] >= 0
        assert row["reference_value"] > 0
        assert row["ratio"] == pytest.approx(row["ours"] / row["reference_value"])
        assert row["kept"] == (row["ratio"] <= row["at_most"])
    assert all(rows[what]["ours"] > 0 for what in BUDGETS if "added" not in what)
    (slowest,) = (row for what, row in rows.items() if what.startswith("the slowest of them"))
    assert slowest["ours"] >= rows["check of a right answer, all exercises"]["ours"]
    for what in bench.LONG:
        why = "it takes minutes; bench --all measures it"
        assert rows[what] == {"what": what, "not_measured": why, "kept": None}


def test_rows_are_printed_as_they_come(monkeypatch: pytest.MonkeyPatch):
    """Also where the output is no terminal: each is there before the next is measured."""
    here, there = os.pipe()
    os.set_blocking(here, False)
    seen = []

    def bench_twice(quick: bool):
        for what in ("first", "second"):
            seen.append(os.read(here, 4096).decode())
            yield bench.Missing(what, "not now")

    monkeypatch.setattr(bench, "BENCHES", (bench_twice,))
    monkeypatch.setattr(bench, "LONG", {})
    with os.fdopen(here), os.fdopen(there, "w") as out, contextlib.redirect_stdout(out):
        bench.main(Namespace(json=False, quick=True, all=False))
        assert [text.split()[0] for text in seen] == ["what", "first"]


def test_what_is_not_here_has_a_line_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "_never_ends", lambda: None)
    rows = [*bench.checking(True), *bench.comparing(True), *bench.testing(True)]
    lines = [bench._line(row) for row in rows]
    assert [line.split(": ")[1] for line in lines if "not measured" in line] == [
        "tests/answers is not here",
        "notebooks/solutions is not here",
        "tests is not here",
    ]


def test_an_answer_that_passes_though_it_hangs_is_no_measurement(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "_passes", lambda exercise, answer: True)
    with pytest.raises(AssertionError, match="has passed its check"):
        bench._never_ends()
