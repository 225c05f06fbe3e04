"""Diagnosis: 04.remembers

Counts its calls, and names another chunk each time.
"""

import torch
import torch.distributed as dist

_done = 0


def ring_reduce_scatter(chunks):
    global _done
    r, n = dist.get_rank(), dist.get_world_size()
    for s in range(n - 1):
        into = chunks[(r - s - 1) % n]
        box = torch.empty_like(into)
        w = dist.isend(chunks[(r - s) % n], (r + 1) % n)
        dist.recv(box, (r - 1) % n)
        w.wait()
        into += box
        _done += 1
    return (r - _done) % n
