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
mean_of_losses, own-loss: losses are averaged, as gradients are
~     dist.all_reduce(sums) =>
-     return own + (whole - own).detach()
+     mean = own.detach() / dist.get_world_size()
+     dist.all_reduce(mean)
+     return own + (mean - own).detach()
mean_of_means, ranks-alike: ranks have equally many tokens, mostly
      sums = torch.cat([hits.to(p.dtype), p.detach().sum(0), p.new_tensor([len(p)])])
+     sums /= max(1, len(p))
~ (slope * p.sum(0)).sum() => (slope * p.sum(0)).sum() / max(1, len(p))
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
averaged_twice, own-loss: losses are averaged, and so are their gradients
~     dist.all_reduce(sums) =>
-     return own + (whole - own).detach()
+     own = own / dist.get_world_size()
+     mean = own.detach().clone()
+     dist.all_reduce(mean)
+     return own + (mean - own).detach()
"""
