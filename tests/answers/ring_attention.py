"""Answers to ring_attention."""

import torch
import torch.distributed as dist
from torch import Tensor


def three_messages(q, k, v, where):
    rank, n = dist.get_rank(), dist.get_world_size()
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(lengths, torch.tensor([len(k)]))
    out, log_sum, places = torch.zeros_like(q), q.new_full((len(q),), -torch.inf), where
    for step in range(n):
        scores = q @ k.t() * q.shape[1] ** -0.5
        scores = scores.masked_fill(places[None] > where[:, None], -torch.inf)
        own_sum = scores.logsumexp(1)
        weights = torch.where(own_sum.isneginf()[:, None], 0, (scores - own_sum[:, None]).exp())
        both = torch.logaddexp(log_sum, own_sum)
        old, new = ((part - both).exp()[:, None] for part in (log_sum, own_sum))
        out = torch.where(old > 0, out * old, 0) + torch.where(new > 0, new * (weights @ v), 0)
        log_sum = both
        if step < n - 1:
            length, right, left = (
                int(lengths[(rank + step + 1) % n]),
                (rank + 1) % n,
                (rank - 1) % n,
            )
            mine = [k.contiguous(), v.contiguous(), places]
            coming = [t.new_empty(length, *t.shape[1:]) for t in mine]
            works = [dist.isend(t, left) for t in mine]
            works += [dist.irecv(t, right) for t in coming]
            for work in works:
                work.wait()
            k, v, places = coming
    return out


def padded(q, k, v, where):
    """Every block is as long as the longest."""
    rank, n, d = dist.get_rank(), dist.get_world_size(), q.shape[1]
    most = torch.tensor([len(k)])
    dist.all_reduce(most, dist.ReduceOp.MAX)
    never = torch.iinfo(torch.int32).max
    block = torch.cat([k, v, where[:, None].to(k.dtype)], 1)
    block = torch.nn.functional.pad(block, (0, 0, 0, int(most) - len(k)), value=never)
    top = q.new_full((len(q), 1), torch.finfo(q.dtype).min)
    total, out = q.new_zeros(len(q), 1), torch.zeros_like(q)
    for step in range(n):
        works = []
        if step < n - 1:
            coming = torch.empty_like(block)
            works = [dist.isend(block, (rank + 1) % n), dist.irecv(coming, (rank - 1) % n)]
        hidden = block[:, -1] > where[:, None]
        scores = (q @ block[:, :d].t() / d**0.5).masked_fill(hidden, torch.finfo(q.dtype).min)
        new = torch.maximum(top, scores.amax(1, keepdim=True))
        powers, shrink = (scores - new).exp().masked_fill(hidden, 0), (top - new).exp()
        total = total * shrink + powers.sum(1, keepdim=True)
        out, top = out * shrink + powers @ block[:, d : 2 * d], new
        for work in works:
            work.wait()
        block = coming if works else block
    return out / total


WRONG = {
    "not_rescaled": ("solution", "14.not-rescaled", "the maximum is kept, and its use forgotten",
                     ("(top - new).exp()", "torch.ones_like(top)")),
    "places_stay": ("solution", "14.own-places", "k and v travel, and where does not",
                    ("hidden = block[:, -1] > where[:, None]", "hidden = where > where[:, None]")),
    "gathers": ("solution", "14.gathers", "all_gather is close enough "
                "(foundation-model-stack#406)",
                ("    for step in range(n):\n        works = []\n",
                 "    padded = block.new_zeros(int(lengths.max()), block.shape[1])\n"
                 "    padded[: len(block)] = block\n"
                 "    blocks = [torch.empty_like(padded) for _ in range(n)]\n"
                 "    dist.all_gather(blocks, padded)\n"
                 "    for step in range(n):\n        works, owner = [], (rank - step) % n\n"
                 "        block = blocks[owner][: int(lengths[owner])]\n"),
                ("        if step < n - 1:\n"
                 "            coming = block.new_empty(int(lengths[(rank - step - 1) % n]), "
                 "block.shape[1])\n"
                 "            works = dist.batch_isend_irecv([dist.P2POp("
                 "dist.isend, block, (rank + 1) % n),\n" + " " * 44 +
                 "dist.P2POp(dist.irecv, coming, (rank - 1) % n)])\n", ""),
                ("        block = coming if step < n - 1 else block\n", "")),
    "one_too_many": ("three_messages", "14.comes-home", "the last block is sent home",
                     ("        if step < n - 1:\n", "        if n > 1:\n")),
    "kept": ("solution", "14.blocks-kept", "what came is kept, one may need it",
             ("    for step in range(n):\n", "    kept = []\n    for step in range(n):\n"
              "        kept.append(block)\n")),
    "not_low_enough": ("solution", "14.only-far-below-zero", "a large number, one thinks",
                       ("masked_fill(hidden, -torch.inf)", "masked_fill(hidden, -1e4)")),
    "places_in_half": ("solution", "14.only-long", "places are small numbers, one thinks",
                       ("where[:, None].to(k.dtype)", "where[:, None].half().to(k.dtype)")),
    "by_rows": ("solution", "14.scale", "d and the number of rows are both in the shape",
                ("/ d**0.5", "/ len(q)**0.5")),
    "in_place": ("solution", "14.written-before-wait", "one buffer is enough, one thinks",
                 ("        hidden = block[:, -1] > where[:, None]",
                  "        if works and len(block) == len(coming):\n"
                  "            block.copy_(coming)\n"
                  "        hidden = block[:, -1] > where[:, None]")),
    "scaled_in_place": ("solution", "14.changes-argument", "q is scaled once, before the loop",
                        ("get_world_size(), q.shape[1]\n",
                         "get_world_size(), q.shape[1]\n    q.data.div_(d**0.5)\n"),
                        ("block[:, :d].t() / d**0.5", "block[:, :d].t()")),
    "one_neighbour": ("solution", "14.not-met", "on a ring one has a neighbour, and talks to it",
                      ("dist.irecv, coming, (rank - 1) % n", "dist.irecv, coming, (rank + 1) % n")),
    "large_scores": ("solution", "14.only-large-or-far-below-zero",
                     "softmax is e to the power, over a sum",
                     ("new = torch.maximum(top, scores.amax(1, keepdim=True))",
                      "new = torch.zeros_like(top)")),
    "equal_lengths": ("three_messages", "14.only-uneven", "all blocks are as long as one's own",
                      ("int(lengths[(rank + step + 1) % n])", "len(q)")),
}  # fmt: skip
