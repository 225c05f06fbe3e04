"""DistributedDataParallel, a sampler, and gradients accumulated under no_sync."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(6):
    x = torch.randn(4, 8)
    if step % 2:
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    else:
        with model.no_sync():
            model(x).square().sum().backward()
print("weights", sum(p.sum().item() for p in model.parameters()))
dist.destroy_process_group()
