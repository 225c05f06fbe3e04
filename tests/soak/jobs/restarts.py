"""The first attempt fails, which is told; the second comes through.

told: RankFailed: rank 1 raised OSError
options: --max-restarts=1
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    raise OSError("a disk was not there yet")
dist.all_reduce(x)
print("second attempt", x.item())
dist.destroy_process_group()
