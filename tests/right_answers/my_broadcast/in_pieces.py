"""Element by element, in a batch: odd, slow and right."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    box = tensor.reshape(-1).clone()
    others = [r for r in range(world) if r != src]
    talk = []
    for i in range(0, len(box), 50):
        piece = box[i : i + 50]
        if rank == src:
            talk += [dist.P2POp(dist.isend, piece, r, tag=i) for r in others]
        else:
            talk.append(dist.P2POp(dist.irecv, piece, src, tag=i))
    for work in dist.batch_isend_irecv(talk) if talk else []:
        work.wait()
    tensor.copy_(box.reshape(tensor.shape))
