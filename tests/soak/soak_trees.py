"""Lesson 09's right answers against gloo: 200 random worlds and lengths; and all on 1,000 ranks."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("checks", ".")]
import pytest
from soak_ranks_common import count, report
from test_trees_at_scale import answers, compared, many_ranks


def test_answers_leave_what_gloo_leaves():
    programs = count(200)
    wrong = compared(programs, 1, (1, 2, 3, 4, 5, 6, 7, 8))
    report("trees", programs=programs, wrong=wrong)
    assert wrong == []


@pytest.mark.parametrize("exercise", ["tree_broadcast", "recursive_doubling"])
def test_every_right_answer_on_a_thousand_ranks(exercise):
    src = 613 if exercise == "tree_broadcast" else None
    for answer in answers(exercise):
        results, rounds = many_ranks(answer, src)
        assert set(results) == {1000.0 if src is None else 613.0}
        assert rounds <= 10 + (src is None) + 1e-6
