"""gradients(model) on real ranks: right programs are silent, and their wrong versions are named."""

from __future__ import annotations

import models as m
import pytest

from course_lib import compare_gradients, run

pytestmark = pytest.mark.slow

ALL = ["0.norm", "0.up", "0.down", "1.norm", "1.up", "1.down", "2", "3"]

# What one process computes; and of each bug the tensors that are told (by the starts of their
# names), the kind, and words of the text.
WHOLE = {m.hybrid: m.plain_whole, m.sequence_and_loss_parallel: m.head_whole}
BUGS = {
    m.hybrid: {
        "each node trains alone": (ALL, "none", "no gradient on ranks"),
        "divided by the nodes, too": (ALL, "factor", "1/2 times"),
    },
    m.sequence_and_loss_parallel: {
        "a norm outside of the plan": (["2."], "sum-missing", "right"),
        "loss times tp": (ALL, "factor", "the size of dp or tp"),
    },
}


@pytest.mark.parametrize("ranks", BUGS, ids=lambda ranks: ranks.__name__)
def test_a_silent_bug_is_named_and_no_false_word_said_of_the_right_program(ranks):
    bugs = ["", *BUGS[ranks]]
    results = run(lambda: [ranks(bug) for bug in bugs], world_size=4).results
    right, *wrong = (
        compare_gradients(WHOLE[ranks](), parts) for parts in zip(*results, strict=True)
    )
    assert {f.kind for f in right} == {"equal"}
    for told, (starts, kind, words) in zip(wrong, BUGS[ranks].values(), strict=True):
        of = [f for f in told if f.name.startswith(tuple(starts))]
        assert [f for f in told if f.kind != "equal"] == of
        assert {f.kind for f in of} == {kind}, told
        assert all(words in f.text for f in of), told
