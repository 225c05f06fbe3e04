"""Diagnosis: 05.skips-buffers

Parameters only: a running mean that has drifted apart passes.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    same = True
    for parameter in model.parameters():
        mine = parameter.detach().contiguous().reshape(-1).view(torch.uint8)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        same = same and all(torch.equal(mine, other) for other in every)
    return same
