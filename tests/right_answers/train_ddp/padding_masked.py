"""The evaluation uses a sampler as well, and counts what the padding repeats only once.

It drops the last, smaller batch of the training, draws with augmentation, and reduces in bfloat16.
"""

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train_ddp(dataset, epochs, batch_size, seed):
    torch.manual_seed(seed)
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Flatten(), nn.Linear(64, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 10)
        )
    )
    model.register_comm_hook(None, bf16_compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=train, drop_last=len(train) >= batch_size)
    test = DistributedSampler(dataset, shuffle=False)
    history = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        train.set_epoch(epoch)
        model.train()
        count = torch.zeros(2)
        for images, labels in loader:
            images = images + 0.05 * torch.randn(images.shape)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += torch.tensor([loss.item() * len(labels), len(labels)])
        model.eval()
        answers = torch.full((len(dataset),), -1)
        with torch.no_grad():
            for i in test:
                answers[i] = model.module(dataset[i][0][None]).argmax()
        dist.all_reduce(answers, dist.ReduceOp.MAX)
        dist.all_reduce(count)
        labels = dataset[:][1]
        history["loss"].append(float(count[0] / count[1]))
        history["accuracy"].append(float((answers == labels).float().mean()))
    return history
