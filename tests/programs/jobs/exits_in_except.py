"""One rank catches its own error, says it, and calls sys.exit(1), as hydra does for a script.

told: rank 1 left early: it called sys.exit.1.
"""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
try:
    if dist.get_rank() == 1:
        print("cause", time.time(), flush=True)
        rate = {"lr": 0.1}["rate"]  # told
    dist.all_reduce(torch.ones(4))
except Exception as error:
    print("error:", error, file=sys.stderr)
    sys.exit(1)
dist.destroy_process_group()
