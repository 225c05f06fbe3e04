"""Answers to sync_batch_norm."""

import torch
import torch.distributed as dist


def differentiable_sum(x, weight, bias, eps):
    class AllReduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, mine):
            total = mine.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx, grad):
            total = grad.clone()
            dist.all_reduce(total)
            return total

    dims = [d for d in range(x.dim()) if d != 1]
    shape = [-1 if d == 1 else 1 for d in range(x.dim())]
    count = x.new_tensor([x.numel() // x.shape[1]])
    sums = torch.cat([x.sum(dims), x.square().sum(dims), count])
    whole = AllReduce.apply(sums)
    mean, square = whole[:-1].div(whole[-1]).chunk(2)
    scale = torch.rsqrt(square - mean.square() + eps)
    z = (x - mean.view(shape)) * scale.view(shape)
    return z * weight.view(shape) + bias.view(shape)


def by_formula(x, weight, bias, eps):
    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            rows = x.transpose(1, -1).reshape(-1, x.shape[1])
            stats = torch.zeros(3, x.shape[1], dtype=x.dtype)
            stats[0], stats[1], stats[2, 0] = rows.sum(0), (rows * rows).sum(0), len(rows)
            dist.all_reduce(stats)
            n = stats[2, 0]
            mean = stats[0] / n
            scale = 1 / torch.sqrt(stats[1] / n - mean * mean + eps)
            z = (rows - mean) * scale
            ctx.save_for_backward(z, weight, scale, n)
            return (z * weight + bias).reshape(x.transpose(1, -1).shape).transpose(1, -1)

        @staticmethod
        def backward(ctx, grad):
            z, weight, scale, n = ctx.saved_tensors
            rows = grad.transpose(1, -1).reshape(z.shape)
            own = torch.stack([rows.sum(0), (rows * z).sum(0)])
            both = own.clone()
            dist.all_reduce(both)
            dx = weight * scale * (rows - both[0] / n - z * both[1] / n)
            dx = dx.reshape(grad.transpose(1, -1).shape).transpose(1, -1)
            return dx, own[1], own[0]

    return Norm.apply(x, weight, bias)


WRONG = """
== differentiable_sum
mean_of_means, counts-ignored: the mean over ranks of what each rank has (pytorch#36688)
- x.sum(dims), x.square().sum(dims), count
+ x.sum(dims) / count, x.square().sum(dims) / count, torch.ones(1)
plain_all_reduce, own-path-only: all_reduce looks like an operator; the graph does not know it
-     whole = AllReduce.apply(sums)
+     dist.all_reduce(sums.data)
+     whole = sums
no_gradient, constant-statistics: no_grad round everything that communicates
~ whole = AllReduce.apply(sums) => whole = AllReduce.apply(sums.detach())
sums_apart, statistics-apart: one call for each quantity
~ whole = AllReduce.apply(sums) => whole = torch.cat([AllReduce.apply(s) for s in sums.chunk(2)])
== by_formula
weight_reduced, weights-added: of the two that were reduced one is returned
~ return dx, own[1], own[0] => return dx, both[1], own[0]
local_statistics, local: nothing is reduced in the forward pass
~             dist.all_reduce(stats) =>
"""
