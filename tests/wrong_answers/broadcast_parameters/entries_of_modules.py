"""Diagnosis: 05.raises

Goes through what modules register, to have every buffer; a layer that is told to do without a bias
registers None in its place.
"""

import torch
import torch.distributed as dist


@torch.no_grad()
def broadcast_parameters(model, src=0):
    # _buffers has the non-persistent ones too, which state_dict() leaves out
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name in sorted(tensors):
                dist.broadcast(tensors[name], src=src)
