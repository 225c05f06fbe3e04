"""Answers to balance_loss."""

import torch
import torch.distributed as dist


def own_backward(p, chosen):
    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, p):
            experts, k = p.shape[1], chosen.shape[1]
            total = torch.zeros(2, experts, dtype=p.dtype)
            total[0] = (chosen[..., None] == torch.arange(experts)).sum((0, 1))
            total[1] = p.sum(0)
            dist.all_reduce(total)
            f = total[0] / total[0].sum()
            slope = experts * k * f / total[0].sum()
            ctx.save_for_backward(slope)
            ctx.shape = p.shape
            return slope @ total[1]

        @staticmethod
        def backward(ctx, gradient):
            (slope,) = ctx.saved_tensors
            return (gradient * slope).expand(ctx.shape)

    return Loss.apply(p)


WRONG = """
== solution
own_loss, nothing-sent: each rank balances its own tokens
~     dist.all_reduce(sums) =>
summed_again, summed-again: a collective that autograd sees
~ p.detach().sum(0) => p.sum(0)
-     dist.all_reduce(sums)
+     from torch.distributed.nn.functional import all_reduce
+
+     sums = all_reduce(sums)
~ own + (whole - own).detach() => whole
no_gradient, no-gradient: the sums are right, and no graph leads to them
~ own + (whole - own).detach() => whole
of_tokens, not-by-k: f is a share of tokens
~ (hits.sum() * tokens) => tokens**2
two_calls, calls: one call for each quantity
-     dist.all_reduce(sums)
+     dist.all_reduce(sums[:experts])
+     dist.all_reduce(sums[experts:])
empty, only-a-rank-without-tokens: p.mean(0) of nothing is NaN
~ p.detach().sum(0) => p.detach().mean(0) * len(p)
"""
