"""Every tensor as bytes, all in one message."""

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    if not tensors:
        return
    raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in tensors]
    parcel = torch.cat(raw)
    dist.broadcast(parcel, src)
    for tensor, part in zip(tensors, parcel.split([len(r) for r in raw]), strict=True):
        tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))
