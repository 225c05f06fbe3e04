"""Ranks first agree on which gradients exist at all; what nobody has stays None."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    parameters = list(model.parameters())
    if not parameters:
        return
    exists = torch.tensor([int(p.grad is not None) for p in parameters])
    dist.all_reduce(exists, dist.ReduceOp.MAX)
    for parameter, somewhere in zip(parameters, exists.tolist(), strict=True):
        if somewhere:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(dist.get_world_size())
