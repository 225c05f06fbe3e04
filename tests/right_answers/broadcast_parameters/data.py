"""Through .data, all calls at once."""

import torch.distributed as dist


def broadcast_parameters(model, src=0):
    tensors = [p.data for p in model.parameters()] + list(model.buffers())
    works = [dist.broadcast(tensor, src, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
