"""Diagnosis: 01.inbox-is-outbox

One tensor is enough, if sending and receiving were at different times; they are not.
"""

import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    going = dist.isend(mine, partner)
    dist.recv(mine, partner)
    going.wait()
    return mine.clone()
