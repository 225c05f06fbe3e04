"""Diagnosis: 05.two-ranks

Tried with two ranks: rank 1 is compared with rank 0, and all hear it.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    answer = torch.ones(1, dtype=torch.int64)
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        if len(every) > 1 and not torch.equal(every[0], every[1]):
            answer.zero_()
    return bool(answer)
