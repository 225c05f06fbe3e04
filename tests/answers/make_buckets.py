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


WRONG = """
== closes_when_full
in_order, forward-order: parameters() is in this order
~ reversed([p for p in params if p.requires_grad]) => [p for p in params if p.requires_grad]
before_the_cap, closes-too-soon: a cap is a limit, one thinks
~ if room <= 0 => if p.nbytes > room
== by_dtype
past_the_cap, closes-too-late: > in place of >=
~ size >= cap_bytes => size > cap_bytes
last_lost, last-lost: the loop only keeps what is full
-         if bucket:
-             buckets.append(bucket)
frozen_too, only-frozen: parameters() has them all; pytorch's DDP filters
~  if p.requires_grad =>
"""
