"""Two groups of the same ranks, used in two orders.

told: Deadlock: every rank waits for another
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
if dist.get_rank() == 1:
    groups.reverse()
print("cause", time.time(), flush=True)
for group in groups:
    dist.all_reduce(torch.ones(4), group=group)  # told
dist.destroy_process_group()
