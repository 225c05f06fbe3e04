"""One rank looks for a key that its configuration lacks.

told: RankFailed: rank 1 raised KeyError
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
config = {"rate": 0.1} if dist.get_rank() == 0 else {"lr": 0.1}
for step in range(3):
    dist.all_reduce(torch.ones(4))
    if step == 1:
        print("cause", time.time(), flush=True)
        rate = config["rate"]  # told
dist.destroy_process_group()
