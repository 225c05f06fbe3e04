"""Answers to sync_batch_norm."""

import torch
import torch.distributed as dist


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
== solution
plain_all_reduce, own-path-only: all_reduce looks like an operator; the graph does not know it
-     sums, squares, count = Total.apply(torch.stack([rows.sum(0), rows.pow(2).sum(0), counted]))
+     sums, squares, count = own = torch.stack([rows.sum(0), rows.pow(2).sum(0), counted])
+     dist.all_reduce(own.data)
sums_apart, statistics-apart: one call for each quantity
-     sums, squares, count = Total.apply(torch.stack([rows.sum(0), rows.pow(2).sum(0), counted]))
+     sums, squares, count = map(Total.apply, [rows.sum(0), rows.pow(2).sum(0), counted])
"""
