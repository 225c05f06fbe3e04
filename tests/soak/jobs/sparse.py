"""DistributedDataParallel with sparse gradients."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Embedding(10, 4, sparse=True))
model(torch.tensor([dist.get_rank(), 3])).sum().backward()
print("gradient", model.module.weight.grad.to_dense().sum(1).tolist())
dist.destroy_process_group()
