"""Diagnosis: 04.values-differ

Replaces what is no number, to be robust: a rank that has diverged goes unnoticed.
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    r, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return
    flat = tensor.contiguous().view(-1)
    parts = flat.tensor_split(n)
    for s in range(2 * (n - 1)):
        out, into = parts[(r - s) % n], parts[(r - s - 1) % n]
        box = torch.empty_like(into)
        w = dist.isend(out, (r + 1) % n)
        dist.recv(box, (r - 1) % n)
        w.wait()
        into.copy_((into + box).nan_to_num() if s < n - 1 else box)
    tensor.copy_(flat.view(tensor.shape))
