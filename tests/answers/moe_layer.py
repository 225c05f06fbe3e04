"""Answers to moe_layer."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def by_messages(x, router, w1, w2, k):
    rank, n, mine = dist.get_rank(), dist.get_world_size(), len(w1)

    def exchange(parts, lengths):
        boxes = [parts[0].new_empty(length, *parts[0].shape[1:]) for length in lengths]
        boxes[rank] = parts[rank].clone()
        others = [peer for peer in range(n) if peer != rank]
        ops = [dist.P2POp(dist.isend, parts[peer].contiguous(), peer) for peer in others]
        ops += [dist.P2POp(dist.irecv, boxes[peer], peer) for peer in others]
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        return boxes

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gives, takes, *parts):
            ctx.sizes = gives
            return tuple(exchange([part.detach() for part in parts], takes))

        @staticmethod
        def backward(ctx, *gradients):
            return None, None, *exchange(gradients, ctx.sizes)

    best, chosen = torch.topk(x @ router.T, k)
    weights = best.softmax(1)
    places = [(chosen == e).nonzero() for e in range(n * mine)]
    told = torch.tensor([len(place) for place in places]).view(n, mine)
    heard = torch.stack(exchange([*told], [mine] * n))
    parts = [x[torch.cat(places[r * mine : (r + 1) * mine])[:, 0]] for r in range(n)]
    gives, takes = told.sum(1).tolist(), heard.sum(1).tolist()
    blocks = [
        block.split(sizes)
        for block, sizes in zip(Exchange.apply(gives, takes, *parts), heard.tolist(), strict=True)
    ]
    results = [
        [F.silu(row @ a.T) @ b.T for row, a, b in zip(block, w1, w2, strict=True)]
        for block in blocks
    ]
    back = torch.cat(Exchange.apply(takes, gives, *map(torch.cat, results)))
    token, choice = torch.cat(places).unbind(1)
    y = torch.zeros(x.shape, dtype=x.dtype)
    return y.index_add(0, token, back * weights[token, choice][:, None])


def by_functional_collectives(x, router, w1, w2, k):
    from torch.distributed import _functional_collectives as functional

    n, mine, world = dist.get_world_size(), len(w1), dist.group.WORLD
    best, chosen = (x @ router.T).softmax(-1).topk(k)
    weights = best / best.sum(-1, keepdim=True)
    order = chosen.view(-1).argsort()
    gives = chosen.view(-1).bincount(minlength=n * mine)
    takes = functional.wait_tensor(functional.all_to_all_single(gives, None, None, world))
    out_sizes, in_sizes = (t.view(n, mine).sum(1).tolist() for t in (takes, gives))
    rows = functional.all_to_all_single_autograd(x[order // k], out_sizes, in_sizes, world)
    whose = torch.arange(mine).repeat(n).repeat_interleave(takes)
    by_expert = whose.argsort(stable=True)
    parts = rows[by_expert].split(whose.bincount(minlength=mine).tolist())
    results = [F.silu(F.linear(part, a)) for part, a in zip(parts, w1, strict=True)]
    results = torch.cat([F.linear(part, b) for part, b in zip(results, w2, strict=True)])
    y = functional.all_to_all_single_autograd(
        results[by_expert.argsort()], in_sizes, out_sizes, world
    )
    y = y[order.argsort()].view(len(x), k, x.shape[1])
    return (y * weights.unsqueeze(-1)).sum(1)


WRONG = """
== solution
sizes_guessed, counts: a rank takes as many rows as it gives
- Exchange.apply(x[by_expert // k], sizes_out, sizes_in)
+ Exchange.apply(x[by_expert // k], sizes_out, sizes_out)
sizes_as_forward, backward-sizes: the same call in forward and backward
~ gradient.contiguous(), sizes_out, sizes_in) => gradient.contiguous(), sizes_in, sizes_out)
no_tokens, not-everybody: a rank without tokens has nothing to do
-     best, experts
+     if not len(x):
+         return x
+     best, experts
== by_functional_collectives
gathers, to-everyone: all tokens go to all ranks, which take what is theirs
      out_sizes, in_sizes = (t.view(n, mine).sum(1).tolist() for t in (takes, gives))
+     every = functional.all_gather_single(F.pad(x, (0, 0, 0, 99 - len(x))), 0, world)
weights_travel, rows: an expert's output is weighted where it is made
      parts = rows[by_expert].split(whose.bincount(minlength=mine).tolist())
+     went = weights.detach().view(-1)[order]
+     functional.wait_tensor(functional.all_to_all_single(went, out_sizes, in_sizes, world))
not_put_back, by-arrival: rows come back as they went
~ y[order.argsort()] => y
averaged_experts, experts-divided: gradients are averaged over ranks (pytorch#160285)
      n, mine, world = dist.get_world_size(), len(w1), dist.group.WORLD
+     w1, w2 = (w / n + (w - w / n).detach() for w in (w1, w2))
"""
