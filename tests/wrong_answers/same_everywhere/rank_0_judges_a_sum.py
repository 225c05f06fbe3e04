"""Diagnosis: 05.cancels

Rank 0 compares the sum with n times its own bytes; two others that differ from it in opposite ways
make the same sum.
"""

import torch
import torch.distributed as dist


def same_everywhere(model) -> bool:
    n = dist.get_world_size()
    same = torch.ones(1, dtype=torch.int32)
    for t in [*model.parameters(), *model.buffers()]:
        raw = t.detach().contiguous().reshape(-1).view(torch.uint8).to(torch.int32)
        total = raw.clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0 and not torch.equal(total, n * raw):
            same[0] = 0
    dist.broadcast(same, src=0)  # the same answer on every rank
    return same.item() == 1
