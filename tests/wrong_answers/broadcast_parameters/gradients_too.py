"""Diagnosis: 05.calls-differ

Sends the gradients along where there are some; ranks that have none wait for other calls.
"""

import torch
import torch.distributed as dist
from torch import nn


def broadcast_parameters(model, src=0):
    for t in [*model.parameters(), *model.buffers()]:
        x = t.detach().contiguous()
        dist.broadcast(x, src)
        t.detach().copy_(x)
        if t.grad is not None:
            dist.broadcast(t.grad, src)
