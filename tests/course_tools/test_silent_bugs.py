"""Silent bugs as public reports tell them, and the same programs right: what is said of each."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import silent_bugs as b
import torch

from course_lib import compare_gradients, simulate

WHOLE = {
    b.tensor_parallel: b.mlp_whole,
    b.data_parallel: b.mlp_whole,
    b.sharded: b.mlp_whole,
    b.tied: b.tied_whole,
}
ALL, NORM = "norm w1 b1 w2 b2", "norm"

# Program, bug, a public report of this kind or "own", which tensors are told, as what kind, and
# words of the text.
BUGS = [
    (b.tensor_parallel, "no f", "nanotron#46", NORM, "sum-missing", "right"),
    (b.tensor_parallel, "b2 over n", "torchtitan#4332", "b2", "factor", "1/n"),
    (b.tensor_parallel, "blocks of the next rank", "own", "w1", "other-part", "rank 0 has"),
    (b.tensor_parallel, "loss times n", "Automodel#3830", ALL, "factor", "n"),
    (b.tensor_parallel, "detached", "Automodel#2995", NORM, "none", "ranks 0, 1 and 2"),
    (b.tensor_parallel, "transposed", "own", "w1", "shape", "(5, 4)"),
    (b.data_parallel, "never reduced", "verl#7493", ALL, "sum-missing", "right"),
    (b.data_parallel, "norm not reduced", "Megatron-LM#1446", NORM, "sum-missing", "right"),
    (b.data_parallel, "reduced to rank 0 alone", "own", ALL, "sum-missing", "zero"),
    (b.data_parallel, "reduced twice", "Megatron-LM#7452", ALL, "factor", "n"),
    (b.data_parallel, "last rank divides", "own", ALL, "some-ranks", "1/3"),
    (b.data_parallel, "uneven, mean of means", "Automodel#3830", ALL, "differs", "agree"),
    (b.sharded, "scattered, not summed", "own", "w1", "differs", "most on"),
    (b.sharded, "shard of the next rank", "own", "w2", "other-part", "rank 0 has"),
    (b.tied, "ends not summed", "Megatron-LM#299, piper#13", "emb", "sum-missing", "right"),
    (b.tied, "the head's share alone", "piper#13", "emb", "some-rows", "0, 1, 2, 3 and 4"),
]


@cache
def whole(program, dtype):
    return WHOLE[program](dtype)


@pytest.mark.parametrize(("program", "bug", "source", "names", "kind", "words"), BUGS)
def test_a_silent_bug_is_named(program, bug, source, names, kind, words):
    job = simulate(program, bug, world_size=3)
    found = compare_gradients(whole(program, torch.float32), job)
    assert {f.name: f.kind for f in found if f.kind != "equal"} == dict.fromkeys(
        names.split(), kind
    ), found
    assert all(words in f.text for f in found if f.kind != "equal"), found


RIGHT = [*product(WHOLE, (2, 3), (torch.float32,)), *product(WHOLE, (4,), (torch.bfloat16,))]


@pytest.mark.parametrize(("program", "n", "dtype"), RIGHT)
def test_no_false_word_of_a_right_program(program, n, dtype):
    found = compare_gradients(whole(program, dtype), simulate(program, "", dtype, world_size=n))
    assert {f.kind for f in found} == {"equal"}, found
