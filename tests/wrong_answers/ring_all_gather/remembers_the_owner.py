"""Diagnosis: 04.remembers

Works out c in the first call, and keeps it for the others.
"""

import torch
import torch.distributed as dist

_c = None


def ring_all_gather(chunks, owned):
    global _c
    r, n = dist.get_rank(), dist.get_world_size()
    if _c is None:
        _c = (owned - r) % n
    k = r + _c
    for s in range(n - 1):
        w = dist.isend(chunks[(k - s) % n], (r + 1) % n)
        dist.recv(chunks[(k - s - 1) % n], (r - 1) % n)
        w.wait()
