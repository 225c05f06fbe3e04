"""Diagnosis: 02.remembers

Takes blocks from whoever comes first: a fast rank's block of the next call is added to this sum.
"""

import torch
import torch.distributed as dist
from torch import nn


def my_reduce_scatter(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    blocks = tensor.tensor_split(n)
    mine = blocks[rank].clone().contiguous()
    works = [dist.isend(blocks[p].contiguous(), p) for p in range(n) if p != rank]
    for _ in range(n - 1):
        box = torch.empty(mine.shape, dtype=mine.dtype)
        dist.recv(box)
        mine += box
    for work in works:
        work.wait()
    return mine
