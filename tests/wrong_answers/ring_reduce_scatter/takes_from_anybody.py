"""Diagnosis: 04.remembers

Who adds all up takes it from whoever comes first; with calls in a row, from the next one, too.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = chunks[rank]
    others = [(rank - shift) % n for shift in range(1, n)]
    under_way = [dist.isend(chunks[other], other) for other in others if chunks[other].numel()]
    if mine.numel():
        inbox = torch.empty_like(mine)
        for _ in range(n - 1):
            dist.recv(inbox)  # in a sum the order does not matter
            mine.add_(inbox)
    for sent in under_way:
        sent.wait()
    return rank
