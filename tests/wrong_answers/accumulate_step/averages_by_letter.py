"""Diagnosis: 06.syncs-each

DDP is silenced, and each micro-batch's gradients are averaged by send and recv, by way of rank 0.
"""

import torch
import torch.distributed as dist
from torch import nn


def _average(grads):
    rank, n = dist.get_rank(), dist.get_world_size()
    for grad in grads:
        mean = grad.detach().contiguous().clone()
        if rank == 0:
            inbox = torch.empty_like(mean)
            for src in range(1, n):
                dist.recv(inbox, src)
                mean += inbox
            mean /= n
            for dst in range(1, n):
                dist.send(mean, dst)
        else:
            dist.send(mean, 0)
            dist.recv(mean, 0)
        grad.copy_(mean)


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    optimizer.zero_grad()
    trained = [p for p in ddp_model.parameters() if p.requires_grad]
    gathered = [torch.zeros_like(p) for p in trained]
    k, total = len(micro_batches), 0.0
    for inputs, targets in micro_batches:
        with ddp_model.no_sync():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets) / k
            loss.backward()
        _average([p.grad for p in trained])
        for sum_, p in zip(gathered, trained, strict=True):
            sum_ += p.grad
            p.grad = None
        total = total + loss.detach().double()
    for sum_, p in zip(gathered, trained, strict=True):
        p.grad = sum_
    torch.nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
