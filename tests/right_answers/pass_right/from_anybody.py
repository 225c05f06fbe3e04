"""A recv from anybody: the left neighbour is the only one who ever sends to a rank."""

import torch
import torch.distributed as dist


def pass_right(mine):
    n, r = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return mine.clone()
    out, inbox = mine.contiguous(), torch.empty_like(mine, memory_format=torch.contiguous_format)
    if r % 2 == 0:
        dist.send(out, (r + 1) % n)
        dist.recv(inbox)
    else:
        dist.recv(inbox)
        dist.send(out, (r + 1) % n)
    return inbox
