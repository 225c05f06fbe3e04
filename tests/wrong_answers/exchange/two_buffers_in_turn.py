"""Diagnosis: 01.remembers

Double buffering: the third call writes into what the first one returned.
"""

import torch
import torch.distributed as dist

_pool = []


def exchange(mine, partner):
    if partner == dist.get_rank():
        return mine.clone()
    if len(_pool) < 2:
        _pool.append(torch.empty(mine.shape, dtype=mine.dtype))
    else:
        _pool.reverse()
        if _pool[1].shape != mine.shape or _pool[1].dtype != mine.dtype:
            _pool[1] = torch.empty(mine.shape, dtype=mine.dtype)
    got = _pool[-1]
    work = dist.isend(mine.contiguous(), partner)
    dist.recv(got, partner)
    work.wait()
    return got
