"""Answers to pipeline_step."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn


def posted_ahead(stage, inputs, targets, m, shape, loss):
    rank, n = dist.get_rank(), dist.get_world_size()
    xs, gs = ([torch.empty(shape) for _ in range(m)] for _ in range(2))
    arrivals = [dist.irecv(x, rank - 1) for x in xs] if rank else []
    returns = [dist.irecv(g, rank + 1) for g in gs[::-1]] if rank < n - 1 else []
    ys, sent, leaves = [], [], []
    for i in range(m):
        if rank:
            arrivals[i].wait()
        leaves.append(xs[i].requires_grad_() if rank else inputs[i])
        ys.append(stage(leaves[i]))
        if rank < n - 1:
            sent.append(dist.isend(ys[i].detach(), rank + 1))
    losses = [loss(y, t) for y, t in zip(ys, targets, strict=True)] if rank == n - 1 else []
    for i in reversed(range(m)):
        if rank < n - 1:
            returns[m - 1 - i].wait()
            torch.autograd.backward(ys[i], gs[i])
        else:
            losses[i].backward(torch.tensor(1 / m))
        if rank:
            sent.append(dist.isend(leaves[i].grad, rank - 1))
    [work.wait() for work in sent]
    return torch.stack(losses).mean().item() if losses else None


def blocking(stage, inputs, targets, m, shape, loss):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    xs, outs = [], []
    for i in range(m):
        xs.append(inputs[i] if rank == 0 else torch.zeros(shape, requires_grad=True))
        if rank:
            dist.recv(xs[i].data, rank - 1)
        outs.append(stage(xs[i]))
        if rank < last:
            dist.send(outs[i].detach(), rank + 1)
        else:
            outs[i] = loss(outs[i], targets[i]) / m
    for x, out in zip(xs, outs, strict=True):
        g = None
        if rank < last:
            g = torch.zeros(shape)
            dist.recv(g, rank + 1)
        out.backward(g)
        if rank:
            dist.send(x.grad, rank - 1)
    return sum(outs).item() if rank == last else None


WRONG = """
== blocking
one_by_one, one-by-one: a micro-batch is a small batch: forward, backward, the next
-     for x, out in zip(xs, outs, strict=True):
-         g = None
+         x, out, g = xs[i], outs[i], None
== solution
no_leaf, no-gradient-at-a-boundary: what is received is a plain tensor
~             x.requires_grad_() =>
loss_everywhere, whose-data: the training loop of one process
~         if is_last: =>         if True:
detached, graph-across-ranks: what is sent is kept
~ kept.append((x, y)) => kept.append((x, y.detach()))
asks_tokens, whole-numbers: every stage treats its input alike
~             x = inputs[i] =>             x = inputs[i].clone().requires_grad_()
zeroes_between, last-alone: zero_grad() comes before every backward
      for i, (x, y) in enumerate(kept):
+         stage.zero_grad()
recomputes, computes-more: GPipe's paper keeps inputs alone, and computes the rest again
~         gradient = None =>         gradient, y = None, stage(x)
"""
