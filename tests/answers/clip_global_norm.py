"""Answers to clip_global_norm."""

import math

import torch
import torch.distributed as dist


def by_squares(params, max_norm):
    params = list(params)
    total = torch.zeros((), dtype=torch.float64)
    for p in params:
        if p.grad is not None and (p.sharded or dist.get_rank() == 0):
            total += p.grad.double().square().sum()
    dist.all_reduce(total)
    norm = total.sqrt()
    for p in params:
        if p.grad is not None:
            p.grad.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm.to(params[-1].dtype)


def by_shares(params, max_norm):
    params = list(params)
    there = [p for p in params if p.grad is not None]
    share = {True: 1.0, False: 1 / dist.get_world_size()}
    squares = (
        torch.linalg.vector_norm(p.grad, dtype=torch.float64).item() ** 2 * share[p.sharded]
        for p in there
    )
    mine = torch.tensor([math.fsum(squares)], dtype=torch.float64)
    dist.all_reduce(mine)
    norm = math.sqrt(mine.item())
    if norm > max_norm:
        for p in there:
            p.grad *= max_norm / norm
    return torch.tensor(norm, dtype=params[0].dtype)


WRONG = """
== by_squares
asks_nobody, own-norm: torch's own function, piece by piece (torchtitan#596)
~     dist.all_reduce(total) =>
~ (p.sharded or dist.get_rank() == 0) => True
all_count, counted-n-times: what is on all ranks is summed, too (DeepSpeed#8478)
~  and (p.sharded or dist.get_rank() == 0) =>
root_before, root-first: norms are added up (torchtune#2420)
~  and (p.sharded or dist.get_rank() == 0) =>
-     dist.all_reduce(total)
-     norm = total.sqrt()
+     norm = total.sqrt()
+     dist.all_reduce(norm)
none_is_no_tensor, none: every parameter has a gradient, one thinks
~         if p.grad is not None: =>         if True:
half_squares, overflows: squares in the gradient's own dtype
~ p.grad.double().square().sum() => p.grad.square().sum()
one_by_one, calls: each parameter is summed by itself
-     dist.all_reduce(total)
+         dist.all_reduce(total)
+         total /= 1 if p is params[-1] else dist.get_world_size()
== by_shares
new_gradients, replaced: a product is a new tensor
~ p.grad *= max_norm / norm => p.grad = p.grad * max_norm / norm
"""
