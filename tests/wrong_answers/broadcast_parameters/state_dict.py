"""Diagnosis: 05.skips-cache

The state_dict is what gets saved, and a buffer with persistent=False is not in it.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    parcel = [model.state_dict()]
    dist.broadcast_object_list(parcel, src)
    model.load_state_dict(parcel[0])
