"""From anybody, in the order of arrival; recv says who it was."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    found = {rank: tensor.clone()}
    while len(found) < world:
        inbox = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        sender = dist.recv(inbox)
        found[sender] = inbox
    return [found[r] for r in range(world)]
