"""Each owner tells everybody, in turn."""

import torch.distributed as dist
from torch import Tensor


def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    shift = (owned - rank) % world
    for owner in range(world):
        chunk = chunks[(owner + shift) % world]
        if owner != rank:
            dist.recv(chunk, owner)
            continue
        for peer in range(world):
            if peer != rank:
                dist.send(chunk, peer)
