"""Diagnosis: 04.values-differ

The tensor's memory as it lies, without a copy to write back. Of a strided tensor these are also
elements that belong to somebody else.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    flat = tensor.as_strided((tensor.numel(),), (1,))
    chunks = list(flat.tensor_split(world))
    for step in range(2 * (world - 1)):
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        going.wait()
        chunks[into].copy_(chunks[into] + inbox if step < world - 1 else inbox)
