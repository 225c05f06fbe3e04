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


def one_expert_at_a_time(x, router, w1, w2, k):
    from torch.distributed.nn.functional import all_to_all_single

    n, mine = dist.get_world_size(), len(w1)
    p, e = (x @ router.T).softmax(-1).topk(k)
    p = p / p.sum(-1, keepdim=True)
    told = torch.stack([(e == ex).sum() for ex in range(n * mine)]).to(torch.int32)
    heard = torch.empty_like(told)
    dist.all_to_all_single(heard, told)
    y = torch.zeros_like(x)
    for local in range(mine):
        places = [(e == r * mine + local).nonzero() for r in range(n)]
        gives, takes = map(len, places), heard[local::mine].tolist()
        token, choice = torch.cat(places).T
        gives = list(gives)
        rows = all_to_all_single(x.new_empty(sum(takes), x.shape[1]), x[token], takes, gives)
        rows = F.silu(rows @ w1[local].T) @ w2[local].T
        rows = all_to_all_single(x.new_empty(len(token), x.shape[1]), rows, gives, takes)
        y = y.index_add(0, token, p[token, choice][:, None] * rows)
    return y


WRONG = {
    "sizes_guessed": ("solution", "16.counts", "a rank takes as many rows as it gives",
                      ("Exchange.apply(x[by_expert // k], sizes_out, sizes_in)",
                       "Exchange.apply(x[by_expert // k], sizes_out, sizes_out)")),
    "gathers": ("by_functional_collectives", "16.to-everyone", "all tokens go to all ranks, which "
                "take what is theirs",
                ("    rows = functional", "    every = functional.all_gather_single("
                 "F.pad(x, (0, 0, 0, 99 - len(x))), 0, world)\n    rows = functional")),
    "weights_travel": ("by_functional_collectives", "16.rows", "an expert's output is "
                       "weighted where it is made",
                       ("    results = [F", "    functional.wait_tensor("
                        "functional.all_to_all_single(weights.detach().view(-1)[order], "
                        "out_sizes, in_sizes, world))\n    results = [F")),
    "not_put_back": ("by_functional_collectives", "16.by-arrival", "rows come back as they went",
                     ("y[order.argsort()]", "y")),
    "not_put_back_by_expert": ("by_functional_collectives", "16.values-differ", "the second "
                               "permutation is forgotten",
                               ("results[by_expert.argsort()]", "results")),
    "put_where_they_went": ("by_functional_collectives", "16.by-arrival", "order is taken for its "
                            "inverse", ("y[order.argsort()]", "y[order]")),
    "by_expert": ("solution", "16.other-expert", "rows are sorted by expert where they leave",
                  (".repeat(n).repeat_interleave(heard)",
                   ".repeat_interleave(heard.view(n, mine).sum(0))")),
    "unsorted": ("solution", "16.other-expert", "the counts are right, and the rows are as they "
                 "were", ("by_expert = experts.flatten().argsort(stable=True)",
                          "by_expert = torch.arange(experts.numel())")),
    "round_robin": ("by_messages", "16.other-expert", "experts are dealt out like cards",
                    ("places[r * mine : (r + 1) * mine]", "places[r :: n]"),
                    ("torch.stack(exchange([*told], [mine] * n))",
                     "torch.stack(exchange([*told.flatten().view(mine, n).T.contiguous()], "
                     "[mine] * n))"),
                    ("gives, takes = told.sum(1).tolist(),",
                     "gives, takes = told.flatten().view(mine, n).sum(0).tolist(),"),
                    ("torch.cat(places).unbind(1)", "torch.cat([places[r + i * n] "
                     "for r in range(n) for i in range(mine)]).unbind(1)")),
    "plain_calls": ("solution", "16.call-unseen", "all_to_all_single looks like a function",
                    ("back = Exchange.apply(results, sizes_in, sizes_out)",
                     "back = rows.new_empty(sum(sizes_out), rows.shape[1])\n"
                     "    dist.all_to_all_single(back, results, sizes_out, sizes_in)")),
    "plain_dispatch": ("by_messages", "16.call-unseen", "tokens are sent, not computed",
                       ("Exchange.apply(gives, takes, *parts), heard",
                        "exchange([part.detach() for part in parts], takes), heard")),
    "same_sizes_back": ("solution", "16.backward-sizes", "backward is forward again",
                        ("            arrived = gradient.new_empty(sum(sizes_out), "
                         "gradient.shape[1])\n            dist.all_to_all_single(arrived, "
                         "gradient.contiguous(), sizes_out, sizes_in)",
                         "            arrived = gradient.clone()")),
    "sizes_as_forward": ("solution", "16.backward-sizes", "the same call in forward and backward",
                         ("gradient.contiguous(), sizes_out, sizes_in)",
                          "gradient.contiguous(), sizes_in, sizes_out)")),
    "router_reads_a_copy": ("solution", "16.router-unseen", "tokens are detached where they are "
                            "routed", ("F.softmax(x @", "F.softmax(x.detach() @")),
    "hard_choice": ("solution", "16.router-unseen", "argmax and topk choose, and choosing has no "
                    "gradient", ("    weights = (best", "    best = best.detach()\n"
                                 "    weights = (best")),
    "router_summed": ("by_messages", "16.router-shared", "the router is on all ranks, so its "
                      "gradient is summed", ("    best, chosen = torch.topk(x @ router.T, k)",
                      "    class Shared(torch.autograd.Function):\n        @staticmethod\n"
                      "        def forward(ctx, t):\n            return t.view_as(t)\n\n"
                      "        @staticmethod\n        def backward(ctx, g):\n"
                      "            g = g.contiguous().clone()\n            dist.all_reduce(g)\n"
                      "            return g\n\n"
                      "    best, chosen = torch.topk(x @ Shared.apply(router).T, k)")),
    "averaged_experts": ("by_functional_collectives", "16.experts-divided", "gradients are "
                         "averaged over ranks (pytorch#160285)",
                         ("    best, chosen", "    w1, w2 = (w / n + (w - w / n).detach() "
                          "for w in (w1, w2))\n    best, chosen")),
    "not_normalised": ("one_expert_at_a_time", "16.not-normalised", "the probabilities are weights",
                       ("    p = p / p.sum(-1, keepdim=True)\n", "")),
    "unweighted": ("solution", "16.unweighted", "the rows are added up",
                   ("weights[by_expert, None] * back", "back")),
    "best_alone": ("by_functional_collectives", "16.best-alone", "argmax is enough",
                   ("(y * weights.unsqueeze(-1)).sum(1)", "(y * weights.unsqueeze(-1))[:, 0]")),
    "relu": ("solution", "16.other-activation", "an MLP has a relu", ("F.silu(", "F.relu(")),
    "no_tokens": ("solution", "16.not-everybody", "a rank without tokens has nothing to do",
                  ("    best, experts", "    if not len(x):\n        return x\n    best, experts")),
    "left_out_of_the_graph": ("one_expert_at_a_time", "16.not-everybody", "without rows of an "
                              "expert nothing is added", ("        y = y.index_add",
                              "        if len(token):\n            y = y.index_add")),
}  # fmt: skip
