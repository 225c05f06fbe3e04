"""Diagnosis: 01.remembers

A tensor at the same address is taken for the same message, though a loop has put other
numbers into it.
"""

import torch
import torch.distributed as dist

_seen = {}


def exchange(mine, partner):
    if partner == dist.get_rank():
        return mine.clone()
    key = mine.data_ptr(), tuple(mine.shape), mine.dtype
    if key not in _seen:
        got = torch.empty(mine.shape, dtype=mine.dtype)
        work = dist.isend(mine.contiguous(), partner)
        dist.recv(got, partner)
        work.wait()
        _seen[key] = mine, got
    return _seen[key][1].clone()
