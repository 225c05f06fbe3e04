"""Answers to my_reduce."""

import torch
import torch.distributed as dist


def chain(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % n
    mine = tensor.clone(memory_format=torch.contiguous_format)
    if place > 0:
        inbox = torch.empty_like(mine)
        dist.recv(inbox, (rank - 1) % n)
        if op in ("sum", "prod"):
            mine = mine + inbox if op == "sum" else mine * inbox
        else:
            mine = torch.max(mine, inbox) if op == "max" else torch.min(mine, inbox)
    if rank == dst:
        tensor.copy_(mine)
    else:
        dist.send(mine, (rank + 1) % n)


WRONG = """
== solution
pythons_max, one-truth-value: Python has a max and a min
~ "max": torch.maximum, "min": torch.minimum => "max": max, "min": min
adds, other-op: op is forgotten
- "prod": torch.mul, "max": torch.maximum, "min": torch.minimum
+ "prod": torch.add, "max": torch.add, "min": torch.add
== chain
in_place, changes-argument: the total grows in the caller's tensors
~ tensor.clone(memory_format=torch.contiguous_format) => tensor.contiguous()
~ mine = mine + inbox if op => mine = mine.add_(inbox) if op
"""
