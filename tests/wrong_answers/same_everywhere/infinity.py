"""Diagnosis: 05.infinity

The difference has to be zero; of two infinities it is not a number.
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
        if mine.dtype == torch.bool:
            mine, every = mine.byte(), [o.byte() for o in every]
        same = same and all(bool(((o - mine) == 0).all()) for o in every)
        signs = [torch.signbit(o) for o in every]
        same = same and all(torch.equal(sign, signs[0]) for sign in signs)
    return same
