"""Diagnosis: 05.cancels

A checksum that counts places as well, as Fletcher's does: harder to fool than a sum, and not bit
by bit. https://en.wikipedia.org/wiki/Fletcher%27s_checksum
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    tensors = [t.detach().reshape(-1) for t in (*model.parameters(), *model.buffers())]
    raw = torch.cat([torch.zeros(0, dtype=torch.uint8), *(t.view(torch.uint8) for t in tensors)])
    places = torch.arange(1, len(raw) + 1)
    mine = torch.stack([raw.long().sum(), (raw.long() * places).sum()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return all(torch.equal(mine, other) for other in every)
