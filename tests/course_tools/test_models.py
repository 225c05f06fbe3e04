"""gradients(model) on real ranks: right programs are silent, and their wrong versions are named."""

from __future__ import annotations

import models as m
import pytest
import torch

from course_lib import compare_gradients, run

ROUGH = {"dtype": torch.bfloat16}
ALL = ["0.norm", "0.up", "0.down", "1.norm", "1.up", "1.down", "2", "3"]

# Whole, ranks, how many, options; and by bug the tensors that are told (by the starts of their
# names), the kind, and words of the text.
PROGRAMS = {
    m.hybrid: (m.plain_whole, 4, {}),
    m.sequence_and_loss_parallel: (m.head_whole, 4, {}),
    m.mixed: (m.plain_whole, 4, ROUGH),
    m.pipeline: (m.plain_whole, 2, {}),
    m.frozen: (m.frozen_whole, 4, {}),
}
BUGS = [
    (m.hybrid, "each node trains alone", ALL, "none", "no gradient on ranks"),
    (m.hybrid, "divided by the nodes, too", ALL, "factor", "1/2 times"),
    (m.sequence_and_loss_parallel, "a norm outside of the plan", ["2."], "sum-missing", "right"),
    (m.sequence_and_loss_parallel, "loss times tp", ALL, "factor", "the size of dp or tp"),
    (m.mixed, "averaged once more", ALL, "factor", "1/n"),
    (m.pipeline, "micro-batches summed", ALL, "factor", "2 times"),
    (m.frozen, "the last step unsynchronized", ["1."], "mean-missing", "nobody took it"),
]


def found(ranks, bug):
    whole, n, options = PROGRAMS[ranks]
    return compare_gradients(whole(), run(ranks, bug, world_size=n).results, **options)


@pytest.mark.parametrize("ranks", PROGRAMS, ids=lambda ranks: ranks.__name__)
def test_no_false_word_of_a_right_program(ranks):
    assert {f.kind for f in found(ranks, "")} == {"equal"}


@pytest.mark.parametrize(("ranks", "bug", "starts", "kind", "words"), BUGS)
def test_a_silent_bug_is_named(ranks, bug, starts, kind, words):
    told = found(ranks, bug)
    of = {f.name for f in told if f.name.startswith(tuple(starts))}
    assert {f.name for f in told if f.kind != "equal"} == of
    assert {f.kind for f in told if f.name in of} == {kind}, told
    assert all(words in f.text for f in told if f.name in of), told
