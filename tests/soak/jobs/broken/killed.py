"""The system takes one rank away, as it does where memory runs out.

told: RankDied: rank 1 was killed by SIGKILL
"""

import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(4))
    if step == 1 and dist.get_rank() == 1:
        print("cause", time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
