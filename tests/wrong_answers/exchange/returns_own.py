"""Diagnosis: 01.returns-own

All messages are right; the wrong one of two tensors is returned.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if partner != dist.get_rank():
        works = [dist.isend(mine.contiguous(), partner), dist.irecv(inbox, partner)]
        for work in works:
            work.wait()
    return mine.clone()
