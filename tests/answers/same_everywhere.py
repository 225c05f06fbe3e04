"""Answers to same_everywhere."""

import hashlib

import torch
import torch.distributed as dist


def gathered_bytes(model):
    same = True
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        same = same and all(torch.equal(mine, other) for other in every)
    return same


def by_digest(model):
    digest = hashlib.sha256()
    for tensor in (*model.parameters(), *model.buffers()):
        digest.update(bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()))
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, digest.hexdigest())
    return len(set(every)) == 1


def compared_with_rank_0(model):
    answer = torch.ones(1, dtype=torch.int64)
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        of_rank_0 = mine.clone()
        dist.broadcast(of_rank_0, 0)
        answer *= int(torch.equal(mine, of_rank_0))
    dist.all_reduce(answer, dist.ReduceOp.MIN)
    return bool(answer)


def smallest_is_largest(model):
    raw = [
        t.detach().contiguous().reshape(-1).view(torch.uint8)
        for t in (*model.parameters(), *model.buffers())
    ]
    low = torch.cat(raw)
    high = low.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return torch.equal(low, high)


WRONG = """
== compared_with_rank_0
leaves_at_once, not-everybody: whoever finds a difference leaves with its answer; the others go on
~ answer *= int(torch.equal(mine, of_rank_0)) => if not torch.equal(mine, of_rank_0): return False
parameters_alone, only-another-buffer: buffers are forgotten
~ (*model.parameters(), *model.buffers()) => model.parameters()
== by_digest
asks_nobody, nothing-sent: the seeds are equal, so the models are, one hopes
~ dist.all_gather_object(every, digest.hexdigest()) => every = [1]
as_saved, skips-unsaved: the state_dict is the model, as far as it is saved
~ (*model.parameters(), *model.buffers()) => model.state_dict().values()
"""
