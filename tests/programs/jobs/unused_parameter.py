"""On one rank a layer stays out of the loss, so its gradient never comes, and DDP waits for it.

told: RankFailed: rank 1 raised RuntimeError: Expected to have finished reduction
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.main, self.extra = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x, both):
        return self.extra(self.main(x)) if both else self.main(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Branches())
for step in range(4):
    if step == 2:
        print("cause", time.time(), flush=True)
    model(torch.ones(2, 4), both=step != 1 or dist.get_rank() == 0).sum().backward()  # told
dist.destroy_process_group()
