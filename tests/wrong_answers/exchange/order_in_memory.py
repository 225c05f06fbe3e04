"""Diagnosis: 01.strided

A transposed matrix is sent in the order in which it lies, without a copy. On the other side the
same elements may lie in another order: shapes have to agree, strides need not.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    outbox = mine.clone()
    inbox = torch.empty_like(outbox)
    order = sorted(range(mine.dim()), key=outbox.stride, reverse=True)
    going = dist.isend(outbox.permute(order), partner)
    dist.recv(inbox.permute(order), partner)
    going.wait()
    return inbox
