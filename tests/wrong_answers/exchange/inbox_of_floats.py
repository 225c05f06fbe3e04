"""Diagnosis: 01.mismatch

An inbox of the right shape and of torch's own dtype: right as long as everybody has float32.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    inbox = torch.zeros(mine.shape)
    going = dist.isend(mine.contiguous(), partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
