"""Diagnosis: 02.values-differ

Clears the receiver's tensor by multiplying it with zero: a NaN in it stays one.
"""

import torch
import torch.distributed as dist
from torch import nn


def my_broadcast(tensor, src):
    if dist.get_rank() == src:
        for peer in range(dist.get_world_size()):
            if peer != src:
                dist.send(tensor.contiguous(), peer)
    else:
        inbox = torch.empty(tensor.shape, dtype=tensor.dtype)
        dist.recv(inbox, src)
        tensor.copy_(inbox) if tensor.dtype == torch.bool else tensor.mul_(0).add_(inbox)
