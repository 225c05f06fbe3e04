"""Diagnosis: 05.values-differ

Compares what model.eval() shows, and leaves the model in that mode.
"""

import hashlib

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model):
    model.eval()
    digest = hashlib.sha256()
    for t in [*model.parameters(), *model.buffers()]:
        digest.update(t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    boxes = [None] * dist.get_world_size()
    dist.all_gather_object(boxes, digest.hexdigest())
    return len(set(boxes)) == 1
