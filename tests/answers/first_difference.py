"""Answers to first_difference."""

import hashlib
from hashlib import sha256

import torch
import torch.distributed as dist
from torch import nn


def one_by_one(model):
    n = dist.get_world_size()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        raw = tensor.detach().flatten().contiguous()
        digest = hashlib.md5(raw.view(torch.uint8).numpy().tobytes()).digest()
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
        every = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(every, mine)
        wrong = [rank for rank in range(n) if not torch.equal(every[rank], every[0])]
        if wrong:
            return name, min(wrong)
    return None


WRONG = """
== solution
hash_of_bytes, salted-hash: hash() is the shortest digest
~ sha256(raw.numpy().tobytes()).digest() => hash(raw.numpy().tobytes())
== one_by_one
tensors_travel, sends-tensors: gather everything, compare, discard
~ torch.frombuffer(bytearray(digest), dtype=torch.uint8) => raw.view(torch.uint8)
"""
