"""Diagnosis: 06.stale-gradients

One line forgotten: backward() adds to what is in .grad, and the loss still falls.
"""

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train_ddp(dataset, epochs, batch_size, seed):
    torch.manual_seed(seed)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    history = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(4)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            sums[:2] += torch.tensor([loss.item() * len(labels), len(labels)])
        with torch.no_grad():
            images, labels = dataset[rank::world_size]
            right = (model(images).argmax(1) == labels).sum().item()
            sums[2:] += torch.tensor([right, len(labels)])
        dist.all_reduce(sums)
        history["loss"].append((sums[0] / sums[1]).item())
        history["accuracy"].append((sums[2] / sums[3]).item())
    return history
