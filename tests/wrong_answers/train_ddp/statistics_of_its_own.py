"""Diagnosis: 06.models-differ

BatchNorm's running means are sent before a forward pass, not after the last one: past DDP each rank
evaluates with its own.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train_ddp(dataset, epochs: int, batch_size: int, seed: int) -> dict:
    rank, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    images, labels = dataset[rank::n]
    history = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        ddp.train()
        counts = torch.zeros(3, dtype=torch.float64)
        for x, y in loader:
            optimizer.zero_grad()
            loss = cross_entropy(ddp(x), y)
            loss.backward()
            optimizer.step()
            counts[0] += loss.item() * len(y)
            counts[1] += len(y)
        ddp.eval()
        with torch.no_grad():
            counts[2] += (ddp.module(images).argmax(1) == labels).sum().item()
        dist.all_reduce(counts)
        history["loss"].append((counts[0] / counts[1]).item())
        history["accuracy"].append(counts[2].item() / len(dataset))
    return history
