"""Diagnosis: 02.remembers

Whoever's own tensor has not changed hands out the list of the last call again.
"""

import torch
import torch.distributed as dist

_last = None, None


def my_all_gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    global _last
    rank, n = dist.get_rank(), dist.get_world_size()
    state = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version
    if _last[0] == state:  # nothing new to send
        return _last[1]
    wire = tensor.contiguous()
    parts = [torch.empty_like(wire) for _ in range(n)]
    parts[rank].copy_(wire)
    for root in range(n):  # one after another has the word
        for other in range(n):
            if rank == root != other:
                dist.send(wire, dst=other)
            elif rank == other != root:
                dist.recv(parts[root], src=root)
    _last = state, parts
    return parts
