"""A parameter server of one rank, from send and receive; frozen ones stay None."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        grad = parameter.grad.contiguous()
        if rank == 0:
            inbox = torch.empty_like(grad)
            for src in range(1, n):
                dist.recv(inbox, src)
                grad += inbox
            grad /= n
            for dst in range(1, n):
                dist.send(grad, dst)
        else:
            dist.send(grad, 0)
            dist.recv(grad, 0)
        parameter.grad.copy_(grad)
