"""Lesson 17's table says what its programs take today, and right answers are near it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import zoo

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from record_plans import TABLE, bytes_of, describe, time_of

RECORDED = json.loads(TABLE.read_text())
OFTEN = slice(None, None, 6)  # of each list; the others are recorded again in tests/soak


@pytest.mark.parametrize("entry", RECORDED["steps"][OFTEN])
def test_a_skeleton_takes_what_was_recorded(entry: dict[str, Any]) -> None:
    assert time_of(describe(**entry["given"])) == pytest.approx(entry["right"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("entry", RECORDED["memory"][OFTEN])
def test_layers_at_their_true_size_hold_what_was_recorded(entry: dict[str, Any]) -> None:
    assert bytes_of(**entry["given"]) == entry["right"]


@pytest.mark.parametrize("name", zoo.right("step_seconds"))
def test_the_formula_meets_every_skeleton(name: str) -> None:
    """But for α where two ranks are alone in a group: their all_reduce needs one message each."""
    seconds = zoo.function("step_seconds", name)
    for entry in RECORDED["steps"]:
        assert seconds(**entry["given"]) == pytest.approx(entry["right"], rel=2e-3)


@pytest.mark.parametrize("name", zoo.right("memory_bytes"))
def test_what_is_counted_is_near_the_sum(name: str) -> None:
    size = zoo.function("memory_bytes", name)
    for entry in RECORDED["memory"]:
        assert size(**entry["given"]) == pytest.approx(entry["right"], rel=0.045)


@pytest.mark.parametrize("name", zoo.right("best_plan"))
def test_no_plan_that_fits_is_much_faster(name: str) -> None:
    best = zoo.function("best_plan", name)
    for entry in RECORDED["clusters"]:
        found = [*best(**entry["given"]).values()][:5]
        [seconds] = (row[5] for row in entry["plans"] if row[:5] == found)
        fits = [row[5] for row in entry["plans"] if row[6] <= entry["given"]["cluster"]["memory"]]
        assert seconds <= 1.02 * min(fits), found
