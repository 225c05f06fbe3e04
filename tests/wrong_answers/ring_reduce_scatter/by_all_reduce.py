"""Diagnosis: 04.collective

The collective that contains it.
"""

import torch.distributed as dist
from torch import Tensor


def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    for chunk in chunks:
        dist.all_reduce(chunk)
    return dist.get_rank()
