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


def by_hooks(x, shard, shape):
    n = dist.get_world_size()

    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard):
            return gathered(shard)

        @staticmethod
        def backward(ctx, grad):
            mine = grad.new_empty(grad.numel() // n)
            dist.reduce_scatter_single(mine, grad.contiguous(), dist.ReduceOp.AVG)
            return mine

    def gathered(shard):
        flat = shard.new_empty(n * shard.numel())
        dist.all_gather_single(flat, shard.detach())
        return flat

    def pack(t):
        return "W" if t.untyped_storage().data_ptr() == place else t

    def unpack(t):
        return gathered(shard)[: shape[0] * shape[1]].view(shape).t() if t == "W" else t

    whole = Whole.apply(shard)
    place = whole.untyped_storage().data_ptr()
    with torch.autograd.graph.saved_tensors_hooks(
        pack, lambda t: unpack(t) if isinstance(t, str) else t
    ):
        return x @ whole[: shape[0] * shape[1]].view(shape).t()


WRONG = {
    "saves_w": ("by_function", "13.weight-saved", "what backward needs is saved",
                ("            ctx.save_for_backward(x, shard)\n"
                 "            return x @ gather(shard).t()",
                 "            w = gather(shard)\n            ctx.save_for_backward(x, shard)\n"
                 "            ctx.w = w\n            return x @ w.t()")),
    "sums": ("by_function", "13.sum", "gradients are added up", ("mine / n", "mine")),
    "x_averaged": ("by_function", "13.x-averaged", "all gradients are averaged",
                   ("            dw = dy", "            if dx is not None:\n"
                    "                dist.all_reduce(dx, dist.ReduceOp.AVG)\n            dw = dy")),
    "in_the_graph": ("by_function", "13.no-gradient", "collectives look like operators",
                     ("return Gathered.apply(x, shard)", "return x @ gather(shard.detach()).t()")),
    "sets_grad": ("by_function", "13.writes-gradient", "shard.grad is where the gradient belongs",
                  ("class Gathered(torch.autograd.Function):\n",
                   "piece = shard\n\n    class Gathered(torch.autograd.Function):\n"),
                  ("            return dx, mine / n",
                   "            piece.grad = mine / n\n            return dx, None")),
    "padding_kept": ("by_function", "13.only-a-remainder", "lengths are multiples of n, one thinks",
                     ("return flat[: shape[0] * shape[1]].view(shape)",
                      "return flat.view(shape)")),
    "not_padded": ("by_function", "13.not-padded", "the gradient has W's length",
                   ("            flat = dw.new_zeros(n * shard.numel())\n"
                    "            flat[: dw.numel()] = dw.flatten()\n",
                    "            flat = dw.flatten()\n")),
    "rows_alone": ("by_function", "13.only-leading-dimensions", "x is a batch of vectors",
                   ("dy.reshape(-1, shape[0]).t() @ x.reshape(-1, shape[1])", "dy.t() @ x")),
    "all_reduces": ("by_function", "13.calls", "all_reduce is the better known",
                    ("            dist.reduce_scatter_single(mine, flat)\n",
                     "            dist.all_reduce(flat)\n"
                     "            mine = flat.view(n, -1)[dist.get_rank()].clone()\n")),
    "gathers_for_samples": ("by_function", "13.only-none-on-the-last-rank", "no samples, no W",
                            ("dx = dy @ gather(shard) if ctx.needs_input_grad[0] else None",
                             "dx = dy @ gather(shard) if x.numel() else torch.zeros_like(x)")),
    "copies_x": ("by_function", "13.holds-too-much", "what is saved is copied, to be safe",
                 ("ctx.save_for_backward(x, shard)", "ctx.save_for_backward(x.clone(), shard)")),
    "whole_gradient": ("by_function", "13.whole-gradient", "backward returns what it has computed",
                       ("return dx, mine / n", "return dx, flat")),
}  # fmt: skip
