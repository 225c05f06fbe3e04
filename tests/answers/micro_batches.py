"""Answers to micro_batches."""

import math

import torch
import torch.distributed as dist


def by_divmod(global_batch, largest):
    rank, n = dist.get_rank(), dist.get_world_size()
    size, rest = divmod(global_batch, n)
    count = math.ceil(math.ceil(global_batch / n) / largest)
    if count == 0:
        return []
    small, more = divmod(size + (rank < rest), count)
    return [small + (k < more) for k in range(count)]


def by_splitting(global_batch, largest):
    shares = torch.arange(global_batch).tensor_split(dist.get_world_size())
    count = -(-len(shares[0]) // largest)
    if not count:
        return []
    return [len(part) for part in shares[dist.get_rank()].tensor_split(count)]


WRONG = {
    "batch_per_rank": (
        "by_divmod",
        "12.everything",
        "the batch of one rank is kept when the world changes: Fast-LLM#241",
        ("divmod(global_batch, n)", "divmod(global_batch, 1)"),
        ("math.ceil(global_batch / n)", "global_batch"),
    ),
    "rest_lost": (
        "by_divmod",
        "12.remainder-lost",
        "whole numbers of samples",
        ("size + (rank < rest)", "size"),
        ("math.ceil(global_batch / n)", "size"),
    ),
    "counts_its_own": (
        "by_splitting",
        "12.own-count",
        "each rank cuts what it has",
        ("len(shares[0])", "len(shares[dist.get_rank()])"),
    ),
    "fills_up": (
        "by_splitting",
        "12.greedy",
        "torch.split makes full ones and a last one",
        (
            "[len(part) for part in shares[dist.get_rank()].tensor_split(count)]",
            "[min(largest, max(0, len(shares[dist.get_rank()]) "
            "- k * largest)) for k in range(count)]",
        ),
    ),
    "never_empty": (
        "by_divmod",
        "12.at-least-one",
        "a batch without samples has no mean",
        ("[small + (k < more)", "[max(1, small + (k < more))"),
    ),
    "larger_last": (
        "by_divmod",
        "12.larger-last",
        "what is left over goes to the end",
        ("(k < more)", "(k >= count - more)"),
    ),
    "empty_batch": (
        "by_splitting",
        "12.only-empty",
        "nothing to do is no case",
        ("    if not count:\n        return []\n", ""),
    ),
}
