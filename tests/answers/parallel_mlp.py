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


WRONG = {
    "bias_inside": ("by_two_functions", "14.bias-n-times", "linear takes a bias, and one is there "
                    "(text-generation-inference#1036)",
                    ("linear(hidden, w2)) + b2", "linear(hidden, w2, b2))")),
    "bias_shared_out": ("by_two_functions", "14.bias-divided", "n times b2/n is b2, forward "
                        "(torchtitan#4332)", ("Summed.apply(linear(hidden, w2)) + b2",
                        "Summed.apply(linear(hidden, w2, b2 / dist.get_world_size()))")),
    "functional": ("by_hook", "14.summed-again", "a collective that autograd knows looks safe",
                   ("    others = share.detach().clone()\n    dist.all_reduce(others)\n"
                    "    return share + (others - share.detach()) + b2",
                    "    from torch.distributed import _functional_collectives as f\n"
                    "    return f.all_reduce(share, 'sum', dist.group.WORLD) + b2")),
    "x_alone": ("by_two_functions", "14.share-of-x", "x is the same everywhere, so nothing has to "
                "be done (nanotron#46)", ("linear(Copied.apply(x), w1, b1)", "linear(x, w1, b1)")),
    "no_sum": ("by_two_functions", "14.own-share", "the second layer's output looks whole",
               ("Summed.apply(linear(hidden, w2))", "linear(hidden, w2)")),
    "detached": ("by_hook", "14.no-gradient", "a copy is sent, and returned",
                 ("share + (others - share.detach()) + b2", "others + b2.detach()")),
    "gathers_hidden": ("by_accident", "14.too-many-calls", "the hidden units are put together, to "
                       "have them whole",
                       ("    y = linear(gelu(linear(Copied.apply(x), w1, b1)), w2)\n"
                        "    dist.all_reduce(y)\n",
                        "    hidden = gelu(linear(Copied.apply(x), w1, b1))\n"
                        "    sizes = torch.zeros(dist.get_world_size(), dtype=torch.int64)\n"
                        "    sizes[dist.get_rank()] = len(b1)\n    dist.all_reduce(sizes)\n"
                        "    at = sizes[: dist.get_rank()].sum() + torch.arange(len(b1))\n"
                        "    wholes = []\n    for mine in (hidden, w2):\n"
                        "        whole = mine.new_zeros(len(mine), int(sizes.sum()))\n"
                        "        whole[:, at] = mine\n        dist.all_reduce(whole.data)\n"
                        "        wholes.append(whole)\n    y = linear(*wholes)\n")),
    "copy_of_strides": ("by_two_functions", "14.copy-summed", "contiguous() is there, and "
                        "fills a copy", ("            total = grad.contiguous().clone()\n"
                        "            dist.all_reduce(total)\n", "            total = grad.clone()\n"
                        "            dist.all_reduce(total.contiguous())\n")),
    "sets_grad": ("by_two_functions", "14.writes-gradient", "x.grad is where the gradient belongs",
                  ("class Copied(torch.autograd.Function):\n",
                   "whole = x\n\n    class Copied(torch.autograd.Function):\n"),
                  ("            total = grad.contiguous().clone()\n"
                   "            dist.all_reduce(total)\n            return total",
                   "            whole.grad = grad.contiguous().clone()\n"
                   "            dist.all_reduce(whole.grad)")),
    "nothing_to_do": ("by_two_functions", "14.not-everybody", "a rank without units has nothing "
                      "to compute", ("    hidden = gelu", "    if not len(b1):\n"
                      "        return torch.zeros_like(x) + b2\n    hidden = gelu")),
    "f_after_w1": ("by_two_functions", "14.f-too-late", "f stands before the cut, and w1 is cut",
                   ("gelu(linear(Copied.apply(x), w1, b1))",
                    "gelu(Copied.apply(linear(x, w1, b1)))")),
    "b1_missing": ("by_two_functions", "14.b1-elsewhere", "x·A has no bias",
                   ("linear(Copied.apply(x), w1, b1)", "linear(Copied.apply(x), w1)")),
    "takes_none": ("by_accident", "14.none-value", "all_reduce looks like a function of its tensor",
                   ("    dist.all_reduce(y)\n", "    y = dist.all_reduce(y)\n")),
    "hook_on_x": ("by_hook", "14.changes-argument", "a hook on x looks shorter",
                  ("copied = x.view_as(x)", "copied = x")),
}  # fmt: skip
