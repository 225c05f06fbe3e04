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


WRONG = {
    "own_loss": ("solution", "16.nothing-sent", "each rank balances its own tokens",
                 ("    dist.all_reduce(sums)\n", "")),
    "mean_of_losses": ("solution", "16.own-loss", "losses are averaged, as gradients are",
                       ("    dist.all_reduce(sums)\n", ""),
                       ("    return own + (whole - own).detach()",
                        "    mean = own.detach() / dist.get_world_size()\n"
                        "    dist.all_reduce(mean)\n    return own + (mean - own).detach()")),
    "mean_of_means": ("solution", "16.ranks-alike", "ranks have equally many tokens, mostly",
                      ("    dist.all_reduce(sums)\n", "    sums /= max(1, len(p))\n"
                       "    dist.all_reduce(sums)\n"),
                      ("(slope * p.sum(0)).sum()", "(slope * p.sum(0)).sum() / max(1, len(p))")),
    "own_probabilities": ("solution", "16.own-part", "f is shared, and P has the gradient",
                          ("own + (whole - own).detach()", "own * tokens / max(1, len(p))")),
    "own_tokens": ("solution", "16.own-tokens-back", "p.mean(0) has the gradient",
                   ("own + (whole - own).detach()",
                    "own * tokens / max(1, len(p)) + (whole - own * tokens / max(1, len(p)))"
                    ".detach()")),
    "own_loss_back": ("solution", "16.own-tokens-back", "the value is of all, and the gradient is "
                      "of the rank's own loss", ("    return own +",
                      "    mine = chosen.flatten().bincount(minlength=experts) / chosen.numel()\n"
                      "    own = experts * (mine.to(p) * p.mean(0)).sum()\n    return own +")),
    "chooses_again": ("solution", "16.largest", "the largest p are counted, not the choices",
                      ("hits = chosen", "hits = p.topk(chosen.shape[1]).indices")),
    "summed_again": ("solution", "16.summed-again", "a collective that autograd sees",
                     ("p.detach().sum(0)", "p.sum(0)"), ("    dist.all_reduce(sums)\n",
                     "    from torch.distributed.nn.functional import all_reduce\n\n"
                     "    sums = all_reduce(sums)\n"), ("own + (whole - own).detach()", "whole")),
    "no_gradient": ("solution", "16.no-gradient", "the sums are right, and no graph leads to them",
                    ("own + (whole - own).detach()", "whole")),
    "of_tokens": ("solution", "16.not-by-k", "f is a share of tokens",
                  ("(hits.sum() * tokens)", "tokens**2")),
    "first": ("own_backward", "16.first-choice", "Switch has one choice for each token",
              ("(chosen[..., None] ==", "(chosen[:, :1, None] =="),
              ("            f = total[0]", "            k = 1\n            f = total[0]")),
    "mean_for_sum": ("solution", "16.scale", "a mean takes the place of the sum",
                     ("slope = experts * hits", "slope = hits")),
    "two_calls": ("solution", "16.calls", "one call for each quantity",
                  ("    dist.all_reduce(sums)\n", "    dist.all_reduce(sums[:experts])\n"
                   "    dist.all_reduce(sums[experts:])\n")),
    "empty": ("solution", "16.only-a-rank-without-tokens", "p.mean(0) of nothing is NaN",
              ("p.detach().sum(0)", "p.detach().mean(0) * len(p)")),
    "mean_of_losses_and_gradients": ("solution", "16.own-loss", "losses are averaged, and so are "
                                     "their gradients", ("    dist.all_reduce(sums)\n", ""),
                                     ("    return own + (whole - own).detach()",
                                      "    own = own / dist.get_world_size()\n"
                                      "    mean = own.detach().clone()\n"
                                      "    dist.all_reduce(mean)\n"
                                      "    return own + (mean - own).detach()")),
}  # fmt: skip
