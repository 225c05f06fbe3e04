"""Diagnosis: 05.through-floats

One float32 vector of everything: two counters beyond 2**24 become one number.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    same = True
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous()
        if not mine.is_floating_point():
            mine = mine.float()
        mine = mine.reshape(-1).view(torch.uint8)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        same = same and all(torch.equal(mine, other) for other in every)
    return same
