"""Diagnosis: 04.over-budget

Chunks of ⌊length/n⌋ elements, and all that is left over in the last one.
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    r, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return
    flat = tensor.contiguous().view(-1)
    q = len(flat) // n
    parts = flat.split([q] * (n - 1) + [len(flat) - q * (n - 1)])
    for s in range(2 * (n - 1)):
        out, into = parts[(r - s) % n], parts[(r - s - 1) % n]
        box = torch.empty_like(into)
        w = dist.isend(out, (r + 1) % n)
        dist.recv(box, (r - 1) % n)
        w.wait()
        into.copy_(into + box if s < n - 1 else box)
    tensor.copy_(flat.view(tensor.shape))
