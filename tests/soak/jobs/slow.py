"""Each rank takes its time in another step."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4)
for step in range(4):
    if step % 2 == dist.get_rank():
        time.sleep(0.7)
    dist.all_reduce(x)
print("sum", x.sum().item())
dist.destroy_process_group()
