"""Diagnosis: 01.one-sided

One sends, one receives: half an exchange, and half of the ranks are content.
"""

import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    inbox = mine.clone().contiguous()
    if dist.get_rank() < partner:
        dist.send(mine.contiguous(), partner)
    elif dist.get_rank() > partner:
        dist.recv(inbox, partner)
    return inbox
