"""Answers to parallel_mlp."""

import torch
import torch.distributed as dist
from torch.nn.functional import gelu, linear


def by_two_functions(x, w1, b1, w2, b2):
    class Copied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            total = grad.contiguous().clone()
            dist.all_reduce(total)
            return total

    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, share):
            total = share.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx, grad):
            return grad

    hidden = gelu(linear(Copied.apply(x), w1, b1))
    return Summed.apply(linear(hidden, w2)) + b2


def by_hook(x, w1, b1, w2, b2):
    def sum_up(grad):
        total = grad.contiguous().clone()
        dist.all_reduce(total)
        return total

    copied = x.view_as(x)
    if copied.requires_grad:
        copied.register_hook(sum_up)
    share = linear(gelu(linear(copied, w1, b1)), w2)
    others = share.detach().clone()
    dist.all_reduce(others)
    return share + (others - share.detach()) + b2


def by_accident(x, w1, b1, w2, b2):
    class Copied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            work = dist.all_reduce(grad := grad.clone(), async_op=True)
            work.wait()
            return grad

    y = linear(gelu(linear(Copied.apply(x), w1, b1)), w2)
    dist.all_reduce(y)
    return y + b2


WRONG = """
== by_two_functions
bias_inside, bias-n-times: linear takes a bias, and one is there (text-generation-inference#1036)
~ linear(hidden, w2)) + b2 => linear(hidden, w2, b2))
bias_shared_out, bias-divided: n times b2/n is b2, forward (torchtitan#4332)
- Summed.apply(linear(hidden, w2)) + b2
+ Summed.apply(linear(hidden, w2, b2 / dist.get_world_size()))
x_alone, share-of-x: x is the same everywhere, so nothing has to be done (nanotron#46)
~ linear(Copied.apply(x), w1, b1) => linear(x, w1, b1)
no_sum, own-share: the second layer's output looks whole
~ Summed.apply(linear(hidden, w2)) => linear(hidden, w2)
f_after_w1, f-too-late: f stands before the cut, and w1 is cut
~ gelu(linear(Copied.apply(x), w1, b1)) => gelu(Copied.apply(linear(x, w1, b1)))
== by_hook
functional, summed-again: a collective that autograd knows looks safe
-     others = share.detach().clone()
-     dist.all_reduce(others)
-     return share + (others - share.detach()) + b2
+     from torch.distributed import _functional_collectives as f
+     return f.all_reduce(share, 'sum', dist.group.WORLD) + b2
hook_on_x, changes-argument: a hook on x looks shorter
~ copied = x.view_as(x) => copied = x
== by_accident
takes_none, none-value: all_reduce looks like a function of its tensor
~     dist.all_reduce(y) =>     y = dist.all_reduce(y)
"""
