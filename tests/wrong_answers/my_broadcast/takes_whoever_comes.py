"""Diagnosis: 02.remembers

Takes whatever comes first: with another root in the next call that may be the next call's message.
"""

import torch
import torch.distributed as dist
from torch import nn


def my_broadcast(tensor, src):
    if dist.get_rank() == src:
        box = tensor.contiguous()
        for peer in range(dist.get_world_size()):
            if peer != src:
                dist.send(box, peer)
    else:
        box = tensor.contiguous()
        dist.recv(box)
        tensor.copy_(box)
