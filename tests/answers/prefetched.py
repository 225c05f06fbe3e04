"""Answers to prefetched."""

import torch
import torch.distributed as dist

from course_lib import compute


def two_ahead(layers):
    def gather(k):
        shard = layers[k][1]
        whole = shard.new_empty(dist.get_world_size() * shard.numel())
        return whole, dist.all_gather_single(whole, shard, async_op=True)

    ahead = [gather(k) for k in range(min(2, len(layers)))]
    sums = []
    for k in range(len(layers)):
        whole, work = ahead.pop(0)
        work.wait()
        compute(layers[k][0])
        sums.append(whole.sum())
        del whole, work
        if k + 2 < len(layers):
            ahead.append(gather(k + 2))
    return sums


def in_lists(layers):
    n = dist.get_world_size()
    on_the_way, out = {}, []
    for number, (seconds, _) in enumerate(layers):
        for k in (number, number + 1):
            if k < len(layers) and k not in on_the_way:
                parts = [torch.empty_like(layers[k][1]) for _ in range(n)]
                on_the_way[k] = parts, dist.all_gather(parts, layers[k][1], async_op=True)
        parts, work = on_the_way[number]
        work.wait()
        compute(seconds)
        out.append(torch.stack([part.sum() for part in parts]).sum())
        on_the_way[number] = parts = work = None
    return out


WRONG = {
    "everything_first": ("two_ahead", "13.too-early", "all gathers are issued, and wait",
                         ("min(2, len(layers))", "len(layers)"),
                         ("        if k + 2 < len(layers):\n"
                          "            ahead.append(gather(k + 2))\n", "")),
    "waits_at_once": ("two_ahead", "13.one-by-one", "what is started is waited for",
                      ("min(2, len(layers))", "min(1, len(layers))"),
                      ("if k + 2 < len(layers)", "if k + 1 < len(layers)"),
                      ("gather(k + 2)", "gather(k + 1)")),
    "kept_in_a_list": ("two_ahead", "13.kept", "what has been gathered stays in a list",
                       ("    sums = []\n", "    sums, used = [], []\n"),
                       ("        del whole, work\n", "        used.append(whole)\n")),
    "freed_before": ("two_ahead", "13.freed-early", "the sum is all that is asked for",
                     ("        compute(layers[k][0])\n        sums.append(whole.sum())\n"
                      "        del whole, work\n",
                      "        sums.append(whole.sum())\n        del whole, work\n"
                      "        compute(layers[k][0])\n")),
    "never_waits": ("two_ahead", "13.not-whole", "computing needs no values here",
                    ("        work.wait()\n        compute(layers[k][0])\n",
                     "        compute(layers[k][0])\n        work.wait()\n")),
    "sums_alone": ("two_ahead", "13.calls", "a sum of sums is the sum",
                   ("        compute(layers[k][0])\n        sums.append(whole.sum())\n",
                    "        compute(layers[k][0])\n        total = layers[k][1].sum()\n"
                    "        dist.all_reduce(total)\n        sums.append(total)\n")),
    "own_shard": ("two_ahead", "13.own-sum", "the shard is at hand",
                  ("sums.append(whole.sum())", "sums.append(layers[k][1].sum())")),
    "reads_the_sum": ("two_ahead", "13.stands-still", "a number holds no layer",
                      ("sums.append(whole.sum())",
                       "sums.append(torch.tensor(whole.sum().item()))")),
    "two_at_least": ("two_ahead", "13.only-one-layer", "there are many layers",
                     ("min(2, len(layers))", "2")),
    "in_pairs": ("two_ahead", "13.late", "two are gathered, then two are used",
                 ("        if k + 2 < len(layers):\n            ahead.append(gather(k + 2))\n",
                  "        if k % 2:\n            ahead = [gather(j) for j in (k + 1, k + 2) "
                  "if j < len(layers)]\n")),
    "padded": ("two_ahead", "13.padded", "one length for all buffers",
               ("        whole = shard.new_empty(dist.get_world_size() * shard.numel())\n",
                "        size = max(len(one) for _, one in layers)\n"
                "        shard = torch.cat([shard, shard.new_zeros(size - len(shard))])\n"
                "        whole = shard.new_empty(dist.get_world_size() * size)\n")),
    "own_times_n": ("two_ahead", "13.own-sum", "all shards are alike, one thinks",
                    ("whole.sum()", "layers[k][1].sum() * dist.get_world_size()")),
}  # fmt: skip
