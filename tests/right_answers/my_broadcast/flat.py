"""src sends to each of the others in turn."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    if rank == src:
        for other in range(world):
            if other != src:
                dist.send(outbox, other)
    else:
        inbox = torch.empty_like(outbox)
        dist.recv(inbox, src)
        tensor.copy_(inbox)
