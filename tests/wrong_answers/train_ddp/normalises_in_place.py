"""Diagnosis: 06.changes-dataset

sub_ and div_ on dataset.tensors: the caller's images, too.
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
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    pixels = dataset.tensors[0]
    pixels -= pixels.mean()
    pixels /= pixels.std() + 1e-8  # mean 0 and deviation 1: trains better
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
