"""One rank calls sys.exit(0), as early stopping does, while the other still needs it.

told: rank 1 left early: it called sys.exit.0.
"""

import atexit
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(4))
    if step == 1 and dist.get_rank() == 1:
        atexit.register(lambda: print("cause", time.time(), flush=True))  # until then it may call
        sys.exit(0)  # told
dist.destroy_process_group()
