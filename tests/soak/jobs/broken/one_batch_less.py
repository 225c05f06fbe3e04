"""One rank has a batch less than the other, and goes on to the end of the epoch.

told: Mismatch: ranks 0 and 1 do not agree on the op
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 2))
for _ in range(4 - dist.get_rank()):
    model(torch.randn(4, 8)).sum().backward()  # told
    print("cause", time.time(), flush=True)
dist.barrier()  # told
dist.destroy_process_group()
