"""Diagnosis: 05.nan

torch.equal compares numbers, and a NaN is not equal to itself: after a bad step replicas are alike,
and it says that they are not.
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
        same = same and all(torch.equal(other, mine) for other in every)
        zeros = torch.signbit(mine) if mine.is_floating_point() else mine
        signs = [torch.signbit(o) if o.is_floating_point() else o for o in every]
        same = same and all(torch.equal(sign, zeros) for sign in signs)
    return same
