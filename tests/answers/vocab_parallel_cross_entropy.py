"""Answers to vocab_parallel_cross_entropy."""

import torch
import torch.distributed as dist


def by_formula(logits, first, targets):
    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            rows, v = logits.shape
            top = logits.amax(1) if v else logits.new_full((rows,), -torch.inf)
            dist.all_reduce(top, dist.ReduceOp.MAX)
            mine = (targets >= first) & (targets < first + v)
            column = torch.where(mine, targets - first, 0)
            powers = (logits - top[:, None]).exp()
            found = logits.new_zeros(rows)
            found[mine] = logits[mine, column[mine]] - top[mine]
            both = torch.stack([powers.sum(1), found])
            dist.all_reduce(both)
            ctx.save_for_backward(powers / both[0][:, None], mine, column)
            return both[0].log() - both[1]

        @staticmethod
        def backward(ctx, grad):
            share, mine, column = ctx.saved_tensors
            of_logits = share.clone()
            of_logits[mine, column[mine]] -= 1
            return of_logits * grad[:, None]

    return Loss.apply(logits)


def by_autograd(logits, first, targets):
    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, share):
            total = share.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx, grad):
            return grad

    padded = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf)
    top = padded.detach().max(1).values
    dist.all_reduce(top, dist.ReduceOp.MAX)
    shifted = logits - top[:, None]
    total = Summed.apply(shifted.exp().sum(1))
    columns = torch.arange(first, first + logits.shape[1])
    is_target = columns == targets[:, None]
    target = Summed.apply((shifted * is_target).sum(1))
    return total.log() - target


def by_log_sums(logits, first, targets):
    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            own = logits.logsumexp(1)
            top = own.clone()
            dist.all_reduce(top, dist.ReduceOp.MAX)
            total = (own - top).exp()
            dist.all_reduce(total)
            whole = top + total.log()
            is_target = torch.arange(first, first + logits.shape[1]) == targets[:, None]
            target = logits.masked_fill(~is_target, 0).sum(1)
            dist.all_reduce(target)
            ctx.save_for_backward((logits - whole[:, None]).exp() - is_target.to(logits.dtype))
            return whole - target

        @staticmethod
        def backward(ctx, grad):
            return ctx.saved_tensors[0] * grad[:, None]

    return Loss.apply(logits)


def by_one_gather(logits, first, targets):
    """Three numbers a row go into one collective."""

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            rows, v = logits.shape
            top = logits.amax(1) if v else logits.new_full((rows,), -torch.inf)
            powers = (logits - top[:, None]).exp()
            is_target = torch.arange(first, first + v) == targets[:, None]
            mine = torch.stack([top, powers.sum(1), (logits * is_target).sum(1)])
            parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, mine)
            tops, sums, found = torch.stack(parts).unbind(1)
            whole = tops.amax(0)
            total = (sums * (tops - whole).exp()).sum(0)
            ctx.save_for_backward((logits - whole[:, None]).exp() / total[:, None], is_target)
            return whole + total.log() - found.sum(0)

        @staticmethod
        def backward(ctx, grad):
            share, is_target = ctx.saved_tensors
            return (share - is_target.to(share.dtype)) * grad[:, None]

    return Loss.apply(logits)


WRONG = {
    "own_maximum": ("by_formula", "14.own-maximum", "the maximum is there to be safe, and each "
                    "rank is", ("            dist.all_reduce(top, dist.ReduceOp.MAX)\n", "")),
    "no_maximum": ("by_autograd", "14.only-in-the-hundreds", "the formula has none",
                   ("shifted = logits - top[:, None]", "shifted = logits")),
    "through_the_maximum": ("by_autograd", "14.through-the-maximum", "detach is forgotten",
                            ("padded.detach().max(1).values", "padded.max(1).values.clone()")),
    "sums_again": ("by_autograd", "14.summed-again", "the backward of a sum is a sum",
                   ("            return grad\n", "            total = grad.clone()\n"
                    "            dist.all_reduce(total)\n            return total\n")),
    "global_columns": ("by_formula", "14.raises", "targets number the whole's columns",
                       ("found[mine] = logits[mine, column[mine]] - top[mine]",
                        "found = logits[torch.arange(rows), targets] - top")),
    "gathers": ("by_autograd", "14.too-many-bytes", "the loss is computed as in one process",
                ("    padded = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf)\n"
                 "    top = padded.detach().max(1).values\n"
                 "    dist.all_reduce(top, dist.ReduceOp.MAX)\n"
                 "    shifted = logits - top[:, None]\n"
                 "    total = Summed.apply(shifted.exp().sum(1))\n"
                 "    columns = torch.arange(first, first + logits.shape[1])\n"
                 "    is_target = columns == targets[:, None]\n"
                 "    target = Summed.apply((shifted * is_target).sum(1))\n"
                 "    return total.log() - target",
                 "    end = torch.tensor([first + logits.shape[1]])\n"
                 "    behind = -end\n    dist.all_reduce(end, dist.ReduceOp.MAX)\n"
                 "    sides = (first, int(end + behind))\n"
                 "    whole = Summed.apply(torch.nn.functional.pad(logits, sides))\n"
                 "    return torch.nn.functional.cross_entropy(whole, targets, reduction='none')")),
    "targets_in_place": ("by_formula", "14.changes-argument", "only the logits are spared",
                         ("column = torch.where(mine, targets - first, 0)",
                          "column = torch.where(mine, targets.sub_(first), 0)")),
    "keeps_outside": ("by_formula", "14.used-twice", "self is at hand, ctx looks like a formality",
                      ("ctx.save_for_backward(powers / both[0][:, None], mine, column)",
                       "globals()['kept'] = powers / both[0][:, None], mine, column"),
                      ("share, mine, column = ctx.saved_tensors",
                       "share, mine, column = kept")),
    "own_sum_saved": ("by_formula", "14.own-sum-back", "the softmax of forward is at hand",
                      ("powers / both[0][:, None]", "powers / powers.sum(1, keepdim=True)")),
    "all_rows": ("by_formula", "14.all-rows", "indexing looks like a column for each row",
                 ("of_logits[mine, column[mine]] -= 1", "of_logits[:, column[mine]] -= 1")),
    "mean": ("by_autograd", "14.one-number", "a loss is one number",
             ("return total.log() - target", "return (total.log() - target).mean()")),
    "no_columns": ("by_formula", "14.only-no-columns", "every rank has some columns",
                   ("logits.amax(1) if v else logits.new_full((rows,), -torch.inf)",
                    "logits.amax(1)")),
}  # fmt: skip
