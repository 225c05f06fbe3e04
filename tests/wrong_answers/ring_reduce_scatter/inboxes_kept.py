"""Diagnosis: 04.remembers

Inboxes are made once, for the sizes of the first call.
"""

import torch
import torch.distributed as dist

_boxes = []


def ring_reduce_scatter(chunks):
    r, n = dist.get_rank(), dist.get_world_size()
    if not _boxes:
        _boxes.extend(torch.empty_like(c) for c in chunks)
    for s in range(n - 1):
        k = (r - s - 1) % n
        w = dist.isend(chunks[(r - s) % n], (r + 1) % n)
        dist.recv(_boxes[k], (r - 1) % n)
        w.wait()
        chunks[k].add_(_boxes[k])
    return (r + 1) % n
