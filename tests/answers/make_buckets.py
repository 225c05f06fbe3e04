"""Answers to make_buckets."""

from itertools import groupby

from torch import nn


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
== solution
last_lost, last-lost: the loop only keeps what is full
-     return buckets
+     return buckets if full else buckets[:-1]
== by_dtype
past_the_cap, closes-too-late: > in place of >=
~ size >= cap_bytes => size > cap_bytes
frozen_too, only-frozen: parameters() has them all; pytorch's DDP filters
~  if p.requires_grad =>
"""
