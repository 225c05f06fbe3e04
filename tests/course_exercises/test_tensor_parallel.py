"""Lesson 14's right answers beside one process, in float64, with parts of unequal size."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import zoo
from test_zoo import verdict_of
from torch import Tensor
from torch.nn import functional as F

from course_lib import simulate

SIZES = (3, 4, 1, 5)  # parts of the ranks
random = partial(torch.randn, dtype=torch.float64)


def mine(t: Tensor, dim: int) -> Tensor:
    return t.split(SIZES, dim)[dist.get_rank()]


def mlp(function: Any) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    shapes = {"x": (5, 6), "w1": (13, 6), "b1": (13,), "w2": (6, 13), "b2": (6,)}
    cut = {"w1": 0, "b1": 0, "w2": 1}
    whole = {name: random(shape).requires_grad_() for name, shape in shapes.items()}
    x, w1, b1, w2, b2 = whole.values()
    y = F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)
    parts = [mine(t.detach(), cut[k]) if k in cut else t.detach() for k, t in whole.items()]
    parts = [part.clone().requires_grad_() for part in parts]
    return compared(function, parts, y, whole, cut)


def cross_entropy(function: Any) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    logits, targets = (random(7, 13) * 100).requires_grad_(), torch.arange(0, 13, 2)
    y = F.cross_entropy(logits, targets, reduction="none")
    part = mine(logits.detach(), 1).clone().requires_grad_()
    ours = partial(function, first=sum(SIZES[: dist.get_rank()]), targets=targets)
    return compared(ours, [part], y, {"logits": logits}, {"logits": 1})


def compared(
    function: Any, parts: list[Tensor], y: Tensor, whole: dict[str, Tensor], cut: dict[str, int]
) -> list[tuple[Tensor, Tensor]]:
    """Values and gradients, ours beside one process's."""
    upstream = random(y.shape)
    y.backward(upstream)
    ours = function(*parts)
    ours.backward(upstream)
    wants = [mine(t.grad, cut[k]) if k in cut else t.grad for k, t in whole.items()]
    return [(ours.detach(), y.detach()), *zip([p.grad for p in parts], wants, strict=True)]


def attention(function: Any) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(2)
    q, k, v = (random(13, 8) for _ in range(3))
    where = mine(torch.randperm(13), 0).sort().values
    want = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    return [(function(q[where], k[where], v[where], where), want[where])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exercise", "job"),
    [
        ("parallel_mlp", mlp),
        ("vocab_parallel_cross_entropy", cross_entropy),
        ("ring_attention", attention),
    ],
)
def test_an_answer_is_one_process_s_to_twelve_digits(exercise: str, job: Any) -> None:
    function = zoo.function(exercise)
    for pairs in simulate(job, function, world_size=len(SIZES)).results:
        for ours, want in pairs:
            assert ours.shape == want.shape
            assert (ours - want).abs().max() <= 1e-12 * max(1.0, want.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exercise", "name", "is_right"),
    [("parallel_mlp", "x_alone", True), ("parallel_mlp", "no_sum", False)],
)
def test_forward_is_said_to_be_right_where_it_is(exercise: str, name: str, is_right: bool) -> None:
    text = str(verdict_of(exercise, zoo.source(exercise, name)))
    assert " ".join(text.split()).count("Forward is right.") == is_right
