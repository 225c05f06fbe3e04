"""Diagnosis: 05.alone

A token of zeros goes to the right first, to see that the neighbour is there:
alone, that is oneself.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    n, rank = dist.get_world_size(), dist.get_rank()
    token = torch.zeros(1)
    going = dist.isend(token, (rank + 1) % n)
    dist.recv(torch.zeros(1), (rank - 1) % n)
    going.wait()
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
