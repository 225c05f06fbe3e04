"""src starts all messages, then waits for all of them."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == src:
        outbox = tensor.contiguous()
        for work in [dist.isend(outbox, other) for other in range(world) if other != src]:
            work.wait()
        return
    inbox = tensor if tensor.is_contiguous() else torch.empty(tensor.shape, dtype=tensor.dtype)
    dist.irecv(inbox, src).wait()
    if inbox is not tensor:
        tensor.copy_(inbox)
