"""Diagnosis: 04.values-differ

Pops the chunk that it sends: the caller's list is empty afterwards.
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(chunks):
    r, n = dist.get_rank(), dist.get_world_size()
    todo = chunks
    order = [todo.pop() for _ in range(n)][::-1]
    for s in range(n - 1):
        into = order[(r - s - 1) % n]
        box = torch.empty_like(into)
        w = dist.isend(order[(r - s) % n], (r + 1) % n)
        dist.recv(box, (r - 1) % n)
        w.wait()
        into += box
    return (r + 1) % n
