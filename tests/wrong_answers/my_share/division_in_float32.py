"""Diagnosis: 00.values-differ

Tensors divide in float32, whose numbers lie 32 apart at half a billion.
"""

import torch
import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    sizes = torch.ceil((n_items - torch.arange(world_size)) / world_size).long()
    start = int(sizes[:rank].sum())
    return range(start, start + int(sizes[rank]))
