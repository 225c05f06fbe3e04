"""Lesson 16's right answers beside one process in float64, and the cases of its exercises."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import zoo
from torch import Tensor
from torch.nn import functional as F

from course_check.cases import Case
from course_check.play import make_play
from course_exercises.catalogue import find
from course_exercises.lesson_16_experts import find_best, place
from course_lib import simulate

LAYERS = [((5, 0, 3), 2, 2), ((3,), 4, 2), ((2, 7, 1, 4), 4, 2)]
double = partial(torch.randn, dtype=torch.float64)


def one_process(x: Tensor, router: Tensor, w1: Tensor, w2: Tensor, k: int) -> Tensor:
    """Every expert computes every token, and most results count nothing."""
    best, chosen = (x @ router.t()).softmax(1).topk(k)
    gate = x.new_zeros(len(x), len(router)).scatter(1, chosen, best / best.sum(1, keepdim=True))
    every = [F.silu(x @ a.t()) @ b.t() for a, b in zip(w1, w2, strict=True)]
    return (gate[..., None] * torch.stack(every, 1)).sum(1)


def layer(function: Any, tokens: tuple[int, ...], mine: int, k: int) -> list[float]:
    """How far this rank's rows and gradients are from one process's, in the largest entry."""
    torch.manual_seed(sum(tokens))
    rank, n, d = dist.get_rank(), len(tokens), 6
    x, upstream = double(sum(tokens), d), double(sum(tokens), d)
    whole = [x, double(n * mine, d), double(n * mine, 5, d), double(n * mine, d, 5)]
    mines = [x.split(tokens)[rank], whole[1], *(w.chunk(n)[rank] for w in whole[2:])]
    wants = gradients(one_process, whole, k, upstream)
    ours = gradients(function, mines, k, upstream.split(tokens)[rank])
    dist.all_reduce(ours[2])  # the router's: each rank has what its own tokens contribute
    wants[:2] = [t.split(tokens)[rank] for t in wants[:2]]
    wants[3:] = [t.chunk(n)[rank] for t in wants[3:]]
    assert [t.shape for t in ours] == [t.shape for t in wants]
    return [(a - b).abs().max().item() for a, b in zip(ours, wants, strict=True) if len(a)]


def gradients(function: Any, given: list[Tensor], k: int, upstream: Tensor) -> list[Tensor]:
    """What a layer returns, and the gradients of what it is given."""
    leaves = [t.clone().requires_grad_() for t in given]
    y = function(*leaves, k)
    return [y.detach(), *torch.autograd.grad((y * upstream).sum(), leaves)]


def loss(function: Any, tokens: tuple[int, ...]) -> list[float]:
    torch.manual_seed(0)
    p = double(sum(tokens), 6).softmax(1).requires_grad_()
    chosen = p.topk(2).indices
    share = chosen.flatten().bincount(minlength=6).double() / chosen.numel()
    want = 6 * (share * p.mean(0)).sum()
    rank = dist.get_rank()
    mine = p.detach().split(tokens)[rank].clone().requires_grad_()
    got = function(mine, chosen.split(tokens)[rank])
    [gradient] = torch.autograd.grad(got, mine)
    theirs = torch.autograd.grad(want, p)[0].split(tokens)[rank]
    return [abs((got - want).item()), (gradient - theirs).abs().sum().item()]


@pytest.mark.slow
def test_a_layer_of_experts_and_its_loss_are_one_process_s_to_twelve_digits() -> None:
    """Simulated; the soak does it on each engine."""
    for tokens, mine, k in LAYERS:
        one = simulate(layer, zoo.function("moe_layer"), tokens, mine, k, world_size=len(tokens))
        other = simulate(loss, zoo.function("balance_loss"), tokens, world_size=len(tokens))
        for job in (one, other):
            assert max(map(max, job.results)) <= 1e-12, tokens


def drawn_cases() -> list[Case]:
    """The cases of moe_layer, for everything that may be drawn."""
    ex = find("moe_layer")
    sources = map(random.Random, range(20))
    cases = [case for rng in sources for case in ex.core(rng) + ex.sturdy(rng)]
    return list({repr(case): case for case in cases}.values())


def test_no_case_has_experts_that_rounding_could_exchange() -> None:
    """Whoever computes in float32 chooses the same experts."""
    ex = find("moe_layer")
    for case in drawn_cases():
        play, k = make_play(ex, case), case.options["k"]
        for rank in play.ranks:
            given = play.given(rank).given
            scores = (given["x"].double() @ given["router"].double().t()).sort(1).values
            if 0 < k < scores.shape[1] and len(scores):
                assert (scores[:, -k] - scores[:, -k - 1]).min() > 1e-4, case


def test_the_largest_first_is_near_enough_in_each_case() -> None:
    """And the best is what all ways to deal six experts to two ranks find."""
    ex = find("place_experts")
    for case in ex.core(random.Random(0)) + ex.sturdy(random.Random(0)):
        loads, n = case.options["loads"], case.options["n"]
        [ranks] = place([(loads, n)])
        assert max(sum(loads[e] for e in rank) for rank in ranks) <= 4 / 3 * find_best(loads, n)
    assert find_best([1.0, 2.0, 3.0, 9.0, 1.0, 8.0], 2) == 12
    assert find_best([5.0, 10.0, 6.0, 1.0], 2) == 11
