"""The two operations as one batch, which is what NCCL wants."""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    outbox = mine.clone(memory_format=torch.contiguous_format)
    inbox = outbox.clone()
    if partner != dist.get_rank():
        ops = [dist.P2POp(dist.isend, outbox, partner), dist.P2POp(dist.irecv, inbox, partner)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    return inbox
