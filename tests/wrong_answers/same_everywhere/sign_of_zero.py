"""Diagnosis: 05.numbers-not-bits

NaN is thought of, and the two zeros are not.
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
        same = same and all(bool(((o == mine) | ((o != o) & (mine != mine))).all()) for o in every)
    return same
