"""Diagnosis: 01.strided

Right for every tensor that has just been made. A column of a matrix is none of these: its elements
have neighbours in memory that are not its own, and gloo refuses to send it.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine, partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
