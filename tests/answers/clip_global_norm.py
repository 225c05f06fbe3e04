"""Answers to clip_global_norm."""

import math

import torch
import torch.distributed as dist


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
== solution
all_count, counted-n-times: what is on all ranks is summed, too (DeepSpeed#8478)
~  if p.sharded or dist.get_rank() == 0] => ]
none_is_no_tensor, none: every parameter has a gradient, one thinks
~  if p.grad is not None] => ]
half_squares, overflows: squares in the gradient's own dtype
~ p.grad.double().square().sum() => p.grad.square().sum()
one_by_one, calls: each parameter is summed by itself
      dist.all_reduce(total)
+     for _ in params[1:]:
+         dist.all_reduce(torch.zeros(()))
"""
