"""Answers to balance_loss."""

import torch
import torch.distributed as dist


def one_call(p, chosen):
    tokens, experts = p.shape
    counts = torch.bincount(chosen.flatten(), minlength=experts)
    total = torch.cat([counts.to(p.dtype), p.detach().sum(0), p.new_tensor([tokens])])
    dist.all_reduce(total)
    share = total[:experts] / total[:experts].sum()
    loss = experts * (share * total[experts:-1]).sum() / total[-1]
    own = experts * (share * p.sum(0)).sum() / total[-1]
    return own + (loss - own).detach()


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
    "own_loss": ("one_call", "16.nothing-sent", "each rank balances its own tokens",
                 ("    dist.all_reduce(total)\n", "")),
    "mean_of_losses": ("one_call", "16.own-loss", "losses are averaged, as gradients are",
                       ("    dist.all_reduce(total)\n", ""),
                       ("    return own + (loss - own).detach()",
                        "    mean = loss.detach() / dist.get_world_size()\n"
                        "    dist.all_reduce(mean)\n"
                        "    return own + (mean - own).detach()")),
    "mean_of_means": ("one_call", "16.ranks-alike", "ranks have equally many tokens, mostly",
                      ("    dist.all_reduce(total)\n", "    total[:-1] /= max(1, tokens)\n"
                       "    total[-1] = 1\n    dist.all_reduce(total)\n"),
                      ("(share * p.sum(0)).sum() / total[-1]",
                       "(share * p.sum(0)).sum() / total[-1] / max(1, tokens)")),
    "own_probabilities": ("one_call", "16.own-part", "f is shared, and P has the gradient",
                          ("(share * total[experts:-1]).sum() / total[-1]",
                           "(share * p.mean(0)).sum()")),
    "own_tokens": ("one_call", "16.own-tokens-back", "p.mean(0) has the gradient",
                   ("own = experts * (share * p.sum(0)).sum() / total[-1]",
                    "own = experts * (share * p.sum(0)).sum() / max(1, tokens)")),
    "summed_again": ("one_call", "16.summed-again", "a collective that autograd sees",
                     ("p.detach().sum(0)", "p.sum(0)"), ("    dist.all_reduce(total)\n",
                     "    from torch.distributed.nn.functional import all_reduce\n\n"
                     "    total = all_reduce(total)\n"), ("own + (loss - own).detach()", "loss")),
    "no_gradient": ("one_call", "16.no-gradient", "the sums are right, and no graph "
                    "leads to them",
                    ("own + (loss - own).detach()", "loss + 0 * p.sum().detach()")),
    "of_tokens": ("one_call", "16.not-by-k", "f is a share of tokens",
                  ("total[:experts] / total[:experts].sum()", "total[:experts] / total[-1]")),
    "first": ("own_backward", "16.first-choice", "Switch has one choice for each token",
              ("(chosen[..., None] ==", "(chosen[:, :1, None] =="),
              ("            f = total[0]", "            k = 1\n            f = total[0]")),
    "mean_for_sum": ("one_call", "16.scale", "mean and E",
                     ("loss = experts * (share * total[experts:-1]).sum()",
                      "loss = (share * total[experts:-1]).sum()"),
                     ("own = experts * ", "own = ")),
    "two_calls": ("one_call", "16.calls", "one call for each quantity",
                  ("    dist.all_reduce(total)\n", "    dist.all_reduce(total[:experts])\n"
                   "    dist.all_reduce(total[experts:])\n")),
    "empty": ("one_call", "16.only-a-rank-without-tokens", "p.mean(0) of nothing is NaN",
              ("p.detach().sum(0)", "p.detach().mean(0) * tokens")),
}  # fmt: skip
