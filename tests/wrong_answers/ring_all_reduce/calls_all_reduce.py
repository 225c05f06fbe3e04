"""Diagnosis: 04.collective

The shortest answer, and no answer.
"""

import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    total = tensor.contiguous()
    dist.all_reduce(total)
    tensor.copy_(total)
