"""Diagnosis: 05.through-another-dtype

One float32 vector of everything, as parameters_to_vector would make it: float64 and large counters
do not fit into it.
"""

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    parcel = torch.cat([torch.zeros(1), *(t.float().flatten() for t in tensors)])
    dist.broadcast(parcel, src)
    parts = parcel[1:].split([t.numel() for t in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))
