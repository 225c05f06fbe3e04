"""Diagnosis: 05.numbers-not-bits

Text shows every NaN as nan, whatever its bits are.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    mine = [repr(t.detach().tolist()) for t in (*model.parameters(), *model.buffers())]
    theirs = [None] * dist.get_world_size()
    dist.all_gather_object(theirs, mine)
    return all(other == theirs[0] for other in theirs)
