"""The ranks of two nodes, which share a folder, bring tensors of two lengths.

told: Mismatch: ranks 0 and 1 do not agree on the shape
agents: 2
logs: shared
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(100))
print("cause", time.time(), flush=True)
dist.all_reduce(torch.ones(100 - 4 * dist.get_rank()))  # told
dist.destroy_process_group()
