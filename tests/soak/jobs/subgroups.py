"""Groups of some ranks, messages between two, and calls that only some make.

ranks: 3
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
low, high = dist.new_group([0, 1]), dist.new_group([1, 2])
x = torch.ones(2) * rank
if rank < 2:
    dist.all_reduce(x, group=low)
if rank > 0:
    dist.broadcast(x, src=1, group=high)
works = [dist.isend(x, (rank + 1) % 3), dist.irecv(y := torch.empty(2), (rank - 1) % 3)]
for work in works:
    work.wait()
print("rank", rank, y.tolist())
dist.destroy_process_group()
