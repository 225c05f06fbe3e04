"""Diagnosis: 01.remembers

A recv without a source takes what comes first: with another partner in the next call, that may be
the next call's message.
"""

import torch
import torch.distributed as dist


def exchange(mine, partner):
    if partner == dist.get_rank():
        return mine.clone()
    got = torch.empty(mine.shape, dtype=mine.dtype)
    work = dist.isend(mine.contiguous(), partner)
    dist.recv(got)
    work.wait()
    return got
