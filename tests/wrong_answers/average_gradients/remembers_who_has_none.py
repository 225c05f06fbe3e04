"""Diagnosis: 05.remembers

Which parameters have no gradient is found out once, to save the question later.
"""

import torch
import torch.distributed as dist
from torch import nn

_unused: list[int] = []


def average_gradients(model: nn.Module) -> None:
    for number, p in enumerate(model.parameters()):
        if number in _unused:
            continue
        has = torch.tensor(float(p.grad is not None))
        dist.all_reduce(has)
        if has == 0:
            _unused.append(number)
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
