"""Diagnosis: 02.dtype

To be exact it adds in float64, and int64 has more digits than that.
"""

import torch
import torch.distributed as dist


def my_reduce(tensor, dst, op):
    two = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    mine = tensor.double().contiguous()
    if dist.get_rank() != dst:
        dist.send(mine, dst)
        return
    inbox = torch.empty_like(mine)
    for source in range(dist.get_world_size()):
        if source != dst:
            dist.recv(inbox, source)
            mine = two(mine, inbox)
    tensor.copy_(mine)
