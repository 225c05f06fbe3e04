"""Both send before they receive.

told: Deadlock: every rank waits for another
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
other = 1 - dist.get_rank()
dist.barrier()
print("cause", time.time(), flush=True)
dist.send(torch.ones(4), dst=other)  # told
dist.recv(torch.ones(4), src=other)
dist.destroy_process_group()
