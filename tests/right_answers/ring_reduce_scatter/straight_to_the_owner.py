"""No ring at all: each chunk goes straight to its owner, which adds what comes."""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    rank, world = dist.get_rank(), dist.get_world_size()
    others = [peer for peer in range(world) if peer != rank]
    works = [dist.isend(chunks[peer], peer) for peer in others]
    for peer in others:
        inbox = torch.empty_like(chunks[rank])
        dist.recv(inbox, peer)
        chunks[rank].add_(inbox)
    for work in works:
        work.wait()
    return rank
