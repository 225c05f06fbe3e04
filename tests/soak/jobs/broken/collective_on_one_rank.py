"""Rank 0 alone calls a collective, beside a model in DistributedDataParallel.

told: Mismatch: ranks 0 and 1 do not agree on the op
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 2))
for step in range(3):
    if step == 1 and dist.get_rank() == 0:
        print("cause", time.time(), flush=True)
        dist.barrier()  # told
    model(torch.randn(4, 8)).sum().backward()  # told
dist.destroy_process_group()
