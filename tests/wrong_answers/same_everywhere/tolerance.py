"""Diagnosis: 05.tolerance

allclose is what one compares floats with; replicas have to be equal, not close.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    same = True
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous()
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        same = same and all(torch.allclose(other, mine, equal_nan=True) for other in every)
    return same
