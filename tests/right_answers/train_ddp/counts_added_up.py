"""A sampler for training, every n-th sample for the evaluation, counts added up in one call."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from course_lib import device


def train_ddp(dataset, epochs, batch_size, seed):
    torch.manual_seed(seed)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )
    model = DistributedDataParallel(model.to(device()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    history = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(4, dtype=torch.float64, device=device())
        for images, labels in loader:
            images, labels = images.to(device()), labels.to(device())
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            sums[0] += loss.item() * len(labels)
            sums[1] += len(labels)
        model.eval()
        with torch.no_grad():
            for i in range(rank, len(dataset), world_size):
                image, label = dataset[i]
                sums[2] += (model(image[None].to(device())).argmax() == label.to(device())).item()
                sums[3] += 1
        model.train()
        dist.all_reduce(sums)
        history["loss"].append((sums[0] / sums[1]).item())
        history["accuracy"].append((sums[2] / sums[3]).item())
    return history
