"""Diagnosis: 06.not-reduced

DDP never reduces; all ranks' gradients are gathered after each micro-batch.
"""

import torch
import torch.distributed as dist
from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    optimizer.zero_grad()
    k, total = len(micro_batches), 0.0
    trained = [p for p in ddp_model.parameters() if p.requires_grad]
    means = [torch.zeros_like(p) for p in trained]
    for inputs, targets in micro_batches:
        with ddp_model.no_sync():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets)
            (loss / k).backward()
        for p, mean in zip(trained, means):
            boxes = [torch.empty_like(p.grad) for _ in range(dist.get_world_size())]
            dist.all_gather(boxes, p.grad.contiguous())
            mean.add_(torch.stack(boxes).detach().mean(0))
            p.grad = None
        total += loss.item()
    for p, mean in zip(trained, means):
        p.grad = mean
    torch.nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    mean = torch.tensor([total / k], dtype=torch.float64, device=inputs.device)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
