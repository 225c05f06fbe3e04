"""Compiled code on one rank reads where nothing is.

told: RankDied: rank 1 was killed by SIGSEGV
"""

import ctypes
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(4))
    if step == 1 and dist.get_rank() == 1:
        print("cause", time.time(), flush=True)
        ctypes.string_at(0)  # told
dist.destroy_process_group()
