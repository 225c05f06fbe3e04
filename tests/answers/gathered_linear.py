"""Answers to gathered_linear."""

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint


def by_function(x, shard, shape):
    def gather(shard):
        flat = shard.new_empty(dist.get_world_size() * shard.numel())
        dist.all_gather_single(flat, shard)
        return flat[: shape[0] * shape[1]].view(shape)

    class Gathered(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.save_for_backward(x, shard)
            return x @ gather(shard).t()

        @staticmethod
        @once_differentiable
        def backward(ctx, dy):
            x, shard = ctx.saved_tensors
            n = dist.get_world_size()
            dx = dy @ gather(shard) if ctx.needs_input_grad[0] else None
            dw = dy.reshape(-1, shape[0]).t() @ x.reshape(-1, shape[1])
            flat = dw.new_zeros(n * shard.numel())
            flat[: dw.numel()] = dw.flatten()
            mine = torch.empty_like(shard)
            dist.reduce_scatter_single(mine, flat)
            return dx, mine / n

    return Gathered.apply(x, shard)


def by_checkpoint(x, shard, shape):
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard):
            parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, shard)
            return torch.cat(parts)

        @staticmethod
        def backward(ctx, grad):
            parts = [p.contiguous() for p in grad.chunk(dist.get_world_size())]
            mine = torch.empty_like(parts[0])
            dist.reduce_scatter(mine, parts)
            return mine / len(parts)

    def layer(x, shard):
        w = Whole.apply(shard)[: shape[0] * shape[1]].view(shape)
        return torch.nn.functional.linear(x, w)

    return checkpoint(layer, x, shard, use_reentrant=False)


WRONG = """
== by_function
saves_w, weight-saved: what backward needs is saved
-             ctx.save_for_backward(x, shard)
-             return x @ gather(shard).t()
+             w = gather(shard)
+             ctx.save_for_backward(x, shard)
+             ctx.w = w
+             return x @ w.t()
sums, sum: gradients are added up
~ mine / n => mine
in_the_graph, no-gradient: collectives look like operators
~ return Gathered.apply(x, shard) => return x @ gather(shard.detach()).t()
sets_grad, writes-gradient: shard.grad is where the gradient belongs
-     class Gathered(torch.autograd.Function):
+     piece = shard
+
+     class Gathered(torch.autograd.Function):
-             return dx, mine / n
+             piece.grad = mine / n
+             return dx, None
padding_kept, only-a-remainder: lengths are multiples of n, one thinks
~ return flat[: shape[0] * shape[1]].view(shape) => return flat.view(shape)
not_padded, not-padded: the gradient has W's length
-             flat = dw.new_zeros(n * shard.numel())
-             flat[: dw.numel()] = dw.flatten()
+             flat = dw.flatten()
rows_alone, only-leading-dimensions: x is a batch of vectors
~ dy.reshape(-1, shape[0]).t() @ x.reshape(-1, shape[1]) => dy.t() @ x
all_reduces, calls: all_reduce is the better known
-             dist.reduce_scatter_single(mine, flat)
+             dist.all_reduce(flat)
+             mine = flat.view(n, -1)[dist.get_rank()].clone()
"""
