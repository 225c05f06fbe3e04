"""One rank has computed in double precision.

told: Mismatch: ranks 0 and 1 do not agree on the dtype
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
x = torch.ones(8, dtype=torch.float64 if dist.get_rank() == 1 else torch.float32)
print("cause", time.time(), flush=True)
dist.all_reduce(x)  # told
dist.destroy_process_group()
