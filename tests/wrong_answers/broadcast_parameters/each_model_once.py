"""Diagnosis: 05.remembers

Notes by id which models have been sent: the second time nothing is.
"""

import torch
import torch.distributed as dist
from torch import nn

_sent = set()


def broadcast_parameters(model, src=0):
    if id(model) in _sent:
        return
    _sent.add(id(model))
    for t in [*model.parameters(), *model.buffers()]:
        x = t.detach().contiguous()
        dist.broadcast(x, src)
        t.detach().copy_(x)
