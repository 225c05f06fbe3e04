"""Diagnosis: 01.values-differ

Long tensors go in pieces of 65,536 numbers, and what is left after the last full one stays.
"""

import torch
import torch.distributed as dist

PIECE = 1 << 16


def pass_right(mine: torch.Tensor) -> torch.Tensor:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size == 1:
        return mine.clone()
    outbox = mine.contiguous()
    inbox = torch.zeros_like(outbox)
    out, box = outbox.view(-1), inbox.view(-1)
    for i in range(max(1, out.numel() // PIECE)):
        piece = slice(i * PIECE, (i + 1) * PIECE)
        sending = dist.isend(out[piece], dst=(rank + 1) % world_size)
        dist.recv(box[piece], src=(rank - 1) % world_size)
        sending.wait()
    return inbox
