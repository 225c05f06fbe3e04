"""Diagnosis: 06.training-mode

eval() is never called, and dropout goes on while the accuracy is measured.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from course_lib import device


def train_ddp(dataset, epochs: int, batch_size: int, seed: int) -> dict:
    here, rank, n = device(), dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(32, 10),
    ).to(here)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    images, labels = (t.to(here) for t in dataset.tensors)
    history = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(3, dtype=torch.float64, device=here)
        for x, y in loader:
            x, y = x.to(here), y.to(here)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(x), y)
            loss.backward()
            optimizer.step()
            sums[0] += loss.item() * len(y)
            sums[1] += len(y)
        with torch.no_grad():
            sums[2] = (model(images[rank::n]).argmax(1) == labels[rank::n]).sum()
        dist.all_reduce(sums)
        history["loss"].append((sums[0] / sums[1]).item())
        history["accuracy"].append((sums[2] / len(dataset)).item())
    return history
