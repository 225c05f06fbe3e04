"""What a verdict says beside its hint: who is wrong, what was given, and what nobody looks at."""

from __future__ import annotations

import pytest
import zoo
from test_zoo import verdict_of

pytestmark = pytest.mark.slow


def shown(exercise: str, name: str) -> str:
    return str(verdict_of(exercise, zoo.source(exercise, name)))


def test_both_shapes_are_said() -> None:
    assert "shape (1, 2), not (2,)" in shown("exchange_edges", "slices")


def test_what_the_other_ranks_have_is_listed_where_the_result_depends_on_it() -> None:
    text = shown("my_reduce", "adds")
    assert "rank 1  given          [2], 0, 'prod'   and is right" in text
    assert "should not be" not in text, "dst's tensor is to be written"


def test_where_no_mistake_is_known_the_ranks_and_elements_that_differ_are_named() -> None:
    source = """
import torch.distributed as dist

def pass_right(mine):
    rank, n = dist.get_rank(), dist.get_world_size()
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, mine.contiguous(), (rank + 1) % n),
        dist.P2POp(dist.irecv, box := mine.new_empty(mine.shape), (rank - 1) % n),
    ]) if n > 1 else []
    for work in works:
        work.wait()
    if n == 1:
        box = mine.clone()
    if rank == 1 and len(box) > 2:
        box[0] += 7
    return box
"""
    verdict = verdict_of("pass_right", source)
    assert verdict.diagnosis == "01.values-differ"
    text = " ".join(str(verdict).split())
    assert "Here only rank 1 is wrong, and element 0 differs, and no other." in text


def test_of_two_causes_that_fit_the_one_that_explains_more_is_told_alone() -> None:
    """An assertion of a tuple lets all nine wrong ones pass, and the first of them among these."""
    text = shown("test_all_reduce", "tuple")
    assert "No wrong one is caught" in text
    assert "two causes" not in text
