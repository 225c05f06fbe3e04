"""Averages as average_gradients does, and makes up for it: n over the number of all samples."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    facts = torch.zeros(2, dtype=torch.float64)
    for parameter in model.parameters():
        parameter.grad = None
    loss = cross_entropy(model(inputs), targets, reduction="sum")
    loss.backward()
    facts[0], facts[1] = loss.item(), len(targets)
    dist.all_reduce(facts)
    n = dist.get_world_size()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    bucket = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(bucket, dist.ReduceOp.AVG)
    bucket *= n / facts[1].item()
    for grad, part in zip(grads, bucket.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad))
    optimizer.step()
    return (facts[0] / facts[1]).item()
