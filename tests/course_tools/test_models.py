"""gradients(model) on real ranks: right programs are silent, and their wrong versions are named."""

from __future__ import annotations

import models as m
import pytest

from course_lib import compare_gradients, run

ALL = ["0.norm", "0.up", "0.down", "1.norm", "1.up", "1.down", "2", "3"]

# What one process computes; and by bug the tensors that are told (by the starts of their names),
# the kind, and words of the text.
WHOLE = {
    m.hybrid: m.plain_whole,
    m.sequence_and_loss_parallel: m.head_whole,
}
BUGS = [
    (m.hybrid, "each node trains alone", ALL, "none", "no gradient on ranks"),
    (m.hybrid, "divided by the nodes, too", ALL, "factor", "1/2 times"),
    (m.sequence_and_loss_parallel, "a norm outside of the plan", ["2."], "sum-missing", "right"),
    (m.sequence_and_loss_parallel, "loss times tp", ALL, "factor", "the size of dp or tp"),
]


def found(ranks, bug):
    return compare_gradients(WHOLE[ranks](), run(ranks, bug, world_size=4).results)


@pytest.mark.parametrize("ranks", WHOLE, ids=lambda ranks: ranks.__name__)
def test_no_false_word_of_a_right_program(ranks):
    assert {f.kind for f in found(ranks, "")} == {"equal"}


@pytest.mark.parametrize(("ranks", "bug", "starts", "kind", "words"), BUGS)
def test_a_silent_bug_is_named(ranks, bug, starts, kind, words):
    told = found(ranks, bug)
    of = {f.name for f in told if f.name.startswith(tuple(starts))}
    assert {f.name for f in told if f.kind != "equal"} == of
    assert {f.kind for f in told if f.name in of} == {kind}, told
    assert all(words in f.text for f in told if f.name in of), told
