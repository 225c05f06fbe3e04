"""Diagnosis: 06.fewer-digits

The gradients travel, once, in a float32 bucket of its own, whatever the model is made of.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    n, k = dist.get_world_size(), len(micro_batches)
    optimizer.zero_grad()
    total = 0.0
    with ddp_model.no_sync():  # we reduce ourselves, once
        for inputs, targets in micro_batches:
            loss = F.cross_entropy(ddp_model(inputs), targets) / k
            loss.backward()
            total += loss.item()
    trained = [p for p in ddp_model.parameters() if p.requires_grad]
    bucket = torch.zeros(sum(p.numel() for p in trained) + 1)
    parts = bucket[:-1].split([p.numel() for p in trained])
    for part, p in zip(parts, trained):
        part.copy_(p.grad.reshape(-1))
    bucket[-1] = total  # the loss travels along
    dist.all_reduce(bucket)
    bucket /= n
    for part, p in zip(parts, trained):
        p.grad.copy_(part.view_as(p))
    torch.nn.utils.clip_grad_norm_(trained, max_norm)
    optimizer.step()
    return bucket[-1].item()
