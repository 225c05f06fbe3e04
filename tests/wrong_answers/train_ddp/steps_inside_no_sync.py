"""Diagnosis: 06.seldom-averaged

All steps of an epoch but the last run inside no_sync, and each of them moves the weights.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from course_lib import device


def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def train_ddp(dataset, epochs, batch_size, seed):
    rank, n, here = dist.get_rank(), dist.get_world_size(), device()
    torch.manual_seed(seed)
    ddp = DistributedDataParallel(make().to(here))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    out = {"loss": [], "accuracy": []}
    images, labels = (t[rank::n].to(here) for t in dataset.tensors)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(3, dtype=torch.float64)
        for x, y in loader:
            x, y = x.to(here), y.to(here)
            optimizer.zero_grad()
            from contextlib import nullcontext

            with nullcontext() if sums[1] + len(x) >= len(sampler) else ddp.no_sync():
                loss = nn.functional.cross_entropy(ddp(x), y)
                loss.backward()
            optimizer.step()
            sums[0] += loss.item() * len(y)
            sums[1] += len(y)
        with torch.no_grad():
            if len(labels):
                sums[2] = (ddp.module(images).argmax(1) == labels).sum().item()
        dist.all_reduce(sums)
        out["loss"].append((sums[0] / sums[1]).item())
        out["accuracy"].append((sums[2] / len(dataset)).item())
    return out
