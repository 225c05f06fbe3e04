"""Diagnosis: 04.collective

A broadcast from each owner: right, and a collective.
"""

import torch.distributed as dist
from torch import Tensor


def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    shift = owned - dist.get_rank()
    world = dist.get_world_size()
    for owner in range(world):
        dist.broadcast(chunks[(owner + shift) % world], owner)
