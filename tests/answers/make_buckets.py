"""Answers to make_buckets."""

from itertools import groupby


def closes_when_full(params, cap_bytes):
    buckets, room = [], 0
    for p in reversed([p for p in params if p.requires_grad]):
        if room <= 0 or p.dtype != buckets[-1][-1].dtype:
            buckets.append([])
            room = cap_bytes
        buckets[-1].append(p)
        room -= p.nbytes
    return buckets


def by_dtype(params, cap_bytes):
    trained = [p for p in params if p.requires_grad]
    buckets = []
    for _, run in groupby(trained[::-1], key=lambda p: p.dtype):
        bucket, size = [], 0
        for p in run:
            bucket.append(p)
            size += p.numel() * p.element_size()
            if size >= cap_bytes:
                buckets.append(bucket)
                bucket, size = [], 0
        if bucket:
            buckets.append(bucket)
    return buckets


WRONG = {
    "in_order": ("closes_when_full", "10.forward-order", "parameters() is in this order",
                 ("reversed([p for p in params if p.requires_grad])",
                  "[p for p in params if p.requires_grad]")),
    "before_the_cap": ("closes_when_full", "10.closes-too-soon", "a cap is a limit, one thinks",
                       ("if room <= 0", "if p.nbytes > room")),
    "past_the_cap": ("by_dtype", "10.closes-too-late", "> in place of >=",
                     ("size >= cap_bytes", "size > cap_bytes")),
    "last_lost": ("by_dtype", "10.last-lost", "the loop only keeps what is full",
                  ("        if bucket:\n            buckets.append(bucket)\n", "")),
    "counts_elements": ("by_dtype", "10.elements", "numel() is at hand",
                        ("p.numel() * p.element_size()", "p.numel()")),
    "frozen_too": ("by_dtype", "10.only-frozen", "parameters() has them all; pytorch's DDP filters",
                   (" if p.requires_grad", "")),
    "frozen_ones_cut": ("by_dtype", "10.only-a-frozen-one-between", "it has another dtype",
                        ("[p for p in params if p.requires_grad]", "params"),
                        ("        for p in run:", "        for p in [p for p in run if "
                         "p.requires_grad]:")),
    "turned_at_the_end": ("closes_when_full", "10.turned-late", "it is the reverse, one thinks",
                          ("reversed([p for p in params if p.requires_grad])",
                           "[p for p in params if p.requires_grad]"),
                          ("return buckets", "return [b[::-1] for b in buckets[::-1]]")),
}  # fmt: skip
