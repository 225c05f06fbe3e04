"""Diagnosis: 05.through-floats

float64 seems wide enough for anything; a counter above 2^53 is not exact in it.
"""

import torch
import torch.distributed as dist


def same_everywhere(model):
    same = torch.ones(1, dtype=torch.int64)
    for t in (*model.parameters(), *model.buffers()):
        bits = t.detach().double().reshape(-1).view(torch.int64)
        of_rank_0 = bits.clone()
        dist.broadcast(of_rank_0, src=0)
        same *= int(torch.equal(bits, of_rank_0))
    dist.all_reduce(same, op=dist.ReduceOp.MIN)
    return bool(same)
