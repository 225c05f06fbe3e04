"""Evaluated through the wrapper, with BatchNorm, in shares of different sizes.

Without gradients only the first forward pass of an epoch sends buffers, and each rank has one.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset


def train_ddp(dataset, epochs, batch_size, seed):
    n, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(seed)
    layers = nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)
    model = DDP(nn.Sequential(nn.Flatten(), *layers))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    mine = DataLoader(Subset(dataset, range(r, len(dataset), n)), batch_size)
    out = {"loss": [], "accuracy": []}
    for e in range(epochs):
        sampler.set_epoch(e)
        model.train()
        t = torch.zeros(2, dtype=torch.float64)
        for x, y in loader:
            if len(y) == 1:  # of a single sample there is no variance
                model.eval()
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            t += torch.tensor([loss.item() * len(y), len(y)], dtype=torch.float64)
        dist.all_reduce(t)
        out["loss"].append((t[0] / t[1]).item())
        model.eval()
        hits = torch.zeros((), dtype=torch.int64)
        with torch.no_grad():
            for x, y in mine:
                hits += (model(x).argmax(1) == y).sum()
        dist.all_reduce(hits)
        out["accuracy"].append(hits.item() / len(dataset))
    return out
