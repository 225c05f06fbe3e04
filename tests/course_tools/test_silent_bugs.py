"""Silent bugs as public reports tell them, and the same programs right: what is said of each."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch
from silent_bugs import (
    data_parallel,
    experts,
    experts_whole,
    mlp_whole,
    sharded,
    tensor_parallel,
    tied,
    tied_whole,
    vocab,
    vocab_whole,
)

from course_lib import compare_gradients, simulate

WHOLE = {
    tensor_parallel: mlp_whole,
    data_parallel: mlp_whole,
    sharded: mlp_whole,
    tied: tied_whole,
    vocab: vocab_whole,
    experts: experts_whole,
}
ALL, NORM = "norm w1 b1 w2 b2", "norm"

# Program, bug, a public report of this kind or "own", which tensors are told, as what kind, and
# words of the text.
BUGS = [
    (tensor_parallel, "no f", "nanotron#46", NORM, "sum-missing", "right"),
    (tensor_parallel, "norm averaged when shares", "gpt-neox#1259", NORM, "factor", "1/n"),
    (tensor_parallel, "b2 over n", "torchtitan#4332", "b2", "factor", "1/n"),
    (tensor_parallel, "b2 on rank 0", "text-generation-inference#1036", "b2", "sum-missing", ""),
    (tensor_parallel, "summed again backward", "own", "norm w1 b1 w2", "factor", "n"),
    (tensor_parallel, "norm summed when whole", "Megatron-LM#7452", NORM, "factor", "n"),
    (tensor_parallel, "blocks of the next rank", "own", "w1", "other-part", "rank 0 has"),
    (tensor_parallel, "loss over n", "own", ALL, "factor", "1/n"),
    (tensor_parallel, "loss times n", "Automodel#3830", ALL, "factor", "n"),
    (tensor_parallel, "detached", "Automodel#2995", NORM, "none", "ranks 0, 1 and 2"),
    (tensor_parallel, "transposed", "own", "w1", "shape", "(5, 4)"),
    (tensor_parallel, "one block scaled", "own", "w2", "some-ranks", "1/2"),
    (data_parallel, "never reduced", "verl#7493", ALL, "sum-missing", "right"),
    (data_parallel, "norm not reduced", "Megatron-LM#1446", NORM, "sum-missing", "right"),
    (data_parallel, "norm unused on rank 1", "own", NORM, "none", "rank 1"),
    (data_parallel, "reduced to rank 0 alone", "own", ALL, "sum-missing", "zero"),
    (data_parallel, "reduced twice", "Megatron-LM#7452", ALL, "factor", "n"),
    (data_parallel, "norm reduced twice", "Megatron-LM#7452", NORM, "factor", "n"),
    (data_parallel, "averaged where a sum is due", "gpt-neox#1259", ALL, "factor", "1/n"),
    (data_parallel, "last rank divides", "own", ALL, "some-ranks", "1/3"),
    (data_parallel, "stale on rank 1", "own", ALL, "some-ranks", "wrong on rank 1"),
    (data_parallel, "accumulated twice", "own", ALL, "factor", "2"),
    (data_parallel, "uneven, mean of means", "Automodel#3830", ALL, "differs", "agree"),
    (sharded, "scattered, not summed", "own", "w1", "differs", "most on"),
    (sharded, "shards averaged", "own", ALL, "factor", "1/n"),
    (sharded, "shard of the next rank", "own", "w2", "other-part", "rank 0 has"),
    (tied, "ends not summed", "Megatron-LM#299, piper#13", "emb", "sum-missing", "right"),
    (tied, "the head's share alone", "piper#13", "emb", "some-rows", "0, 1, 2, 3 and 4"),
    (tied, "tied mean", "Megatron-LM#844", "emb", "factor", "1/2"),
    (vocab, "first row lost", "own", "emb", "some-rows", "zero"),
    (vocab, "padding row counted twice", "own", "emb", "some-ranks", "row 0 on rank 0: 2 times"),
    (experts, "router detached", "Automodel#2995", "router", "none", "ranks 0, 1 and 2"),
    (experts, "router not reduced", "torchtitan#2416", "router", "sum-missing", "right"),
    (experts, "router reduced twice", "Megatron-LM#7452", "router", "factor", "n"),
    (experts, "experts divided once more", "megablocks#86", "experts", "factor", "1/n"),
    (experts, "experts not divided", "pytorch#160285", "experts", "factor", "n"),
    (experts, "idle expert on the last rank", "Automodel#2995", "experts", "none", "rank 2"),
    (experts, "summed again", "own", "router experts", "factor", "n"),
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


RIGHT = [*product(WHOLE, (2, 3, 8), (torch.float32,)), *product(WHOLE, (4,), (torch.bfloat16,))]


@pytest.mark.parametrize(("program", "n", "dtype"), RIGHT)
def test_no_false_word_of_a_right_program(program, n, dtype):
    found = compare_gradients(whole(program, dtype), simulate(program, "", dtype, world_size=n))
    assert {f.kind for f in found} == {"equal"}, found
