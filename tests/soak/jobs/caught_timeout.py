"""A rank waits half a second for a message that it can do without, and goes on."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
aside = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
if dist.get_rank() == 0:
    try:
        dist.recv(torch.empty(1), src=1, group=aside)
    except RuntimeError:
        print("went on without it")
else:
    time.sleep(1)
dist.barrier()
dist.destroy_process_group()
