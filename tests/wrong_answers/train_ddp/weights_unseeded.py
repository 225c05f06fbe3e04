"""Diagnosis: 06.not-repeatable

DDP sends the weights of rank 0 to everybody, so it needs no seed to train one model. What rank 0
draws depends on what was drawn before, and nobody will ever get this model again.
"""

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train_ddp(dataset, epochs, batch_size, seed):
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    losses, accuracies = [], []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        count = torch.zeros(3, dtype=torch.float64)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count[:2] += torch.tensor([loss.item() * len(labels), len(labels)])
        with torch.no_grad():
            images, labels = dataset[dist.get_rank() :: dist.get_world_size()]
            count[2] = (model(images).argmax(1) == labels).sum()
        dist.all_reduce(count)
        losses.append((count[0] / count[1]).item())
        accuracies.append(count[2].item() / len(dataset))
    return {"loss": losses, "accuracy": accuracies}
