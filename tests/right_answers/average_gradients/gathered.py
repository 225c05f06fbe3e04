"""Everybody's gradients to everybody, averaged there: many bytes, the same mean."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        mine = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine.detach())
        mean = sum(g.double() for g in every) / len(every)
        if parameter.grad is None:
            parameter.grad = mean.to(parameter.dtype)
        else:
            parameter.grad.copy_(mean)
