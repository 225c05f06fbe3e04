"""Diagnosis: 06.models-differ

BatchNorm's running statistics are each rank's own until DDP's forward pass broadcasts those of
rank 0; the evaluation calls the inner model, and every rank with statistics of its own.
"""

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train_ddp(dataset, epochs, batch_size, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 32))
    model.extend([nn.BatchNorm1d(32, momentum=0.9), nn.Tanh(), nn.Linear(32, 10)])
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    history = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for images, labels in loader:
            model.train(len(labels) > 1)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(labels), len(labels)])
        dist.all_reduce(sums)
        model.eval()
        with torch.no_grad():
            images, labels = dataset[:]
            right = (model.module(images).argmax(1) == labels).float().mean()
        history["loss"].append((sums[0] / sums[1]).item())
        history["accuracy"].append(right.item())
    return history
