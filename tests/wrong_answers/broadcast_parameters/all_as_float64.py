"""Diagnosis: 05.through-another-dtype

One message for everything, in float64, which cannot hold every int64.
"""

import torch
import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    tensors = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
    if not tensors:
        return
    flat = torch.cat([tensor.reshape(-1).double() for tensor in tensors])
    dist.broadcast(flat, src=src)
    if dist.get_rank() != src:
        for tensor, piece in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(piece.view(tensor.shape))
