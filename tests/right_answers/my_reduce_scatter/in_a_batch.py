"""One batch into rows, and one sum over the rows."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    size = tensor.shape[0] // world
    rows = torch.zeros((world, size, *tensor.shape[1:]), dtype=tensor.dtype)
    rows[rank] = tensor[rank * size : (rank + 1) * size]
    talk = []
    for r in range(world):
        if r != rank:
            talk.append(dist.P2POp(dist.irecv, rows[r], r))
            part = tensor[r * size : (r + 1) * size].contiguous()
            talk.append(dist.P2POp(dist.isend, part, r))
    for work in dist.batch_isend_irecv(talk) if talk else []:
        work.wait()
    return rows.sum(0).to(tensor.dtype)
