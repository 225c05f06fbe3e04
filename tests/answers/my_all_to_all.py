"""Answers to my_all_to_all."""

import torch
import torch.distributed as dist


def in_a_batch(blocks):
    rank, n = dist.get_rank(), dist.get_world_size()
    sizes = torch.zeros(n * n, dtype=torch.int64)
    dist.all_gather_single(sizes, torch.tensor([len(block) for block in blocks]))
    got = [torch.empty(int(sizes[k * n + rank]), dtype=blocks[0].dtype) for k in range(n)]
    got[rank].copy_(blocks[rank])
    others = [k for k in range(n) if k != rank]
    ops = [dist.P2POp(dist.isend, blocks[k].contiguous(), k) for k in others]
    ops += [dist.P2POp(dist.irecv, got[k], k) for k in others]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    return got


def in_steps(blocks):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([block.numel() for block in blocks])
    theirs = torch.empty_like(mine)
    dist.all_to_all_single(theirs, mine)
    got = [blocks[0].new_empty(size) for size in theirs.tolist()]
    got[rank] = blocks[rank].clone(memory_format=torch.contiguous_format)
    for step in range(1, n):
        to, source = (rank + step) % n, (rank - step) % n
        going = dist.isend(blocks[to].contiguous(), to)
        dist.recv(got[source], source)
        going.wait()
    return got


WRONG = """
== in_a_batch
own_sizes, lengths: what comes is taken to be as long as what goes: output splits are the transpose
of input splits (pytorch/pytorch#32361, #117486)
-     sizes = torch.zeros(n * n, dtype=torch.int64)
-     dist.all_gather_single(sizes, torch.tensor([len(block) for block in blocks]))
~ int(sizes[k * n + rank]) => len(blocks[k])
== in_steps
the_collective, collective: the shortest answer
      got[rank] = blocks[rank].clone(memory_format=torch.contiguous_format)
+     dist.all_to_all(got, [b.contiguous() for b in blocks])
+     return got
arrival_order, arrival-order: each block is appended when it comes
-     return got
+         came.append(got[source])
+     return came
      got[rank] = blocks[rank].clone(memory_format=torch.contiguous_format)
+     came = [got[rank]]
everything, too-much: each rank sends all its blocks, and the receiver takes its own
~ going = dist.isend(blocks[to].contiguous(), to) => going = dist.isend(torch.cat(blocks), to)
-         dist.recv(got[source], source)
+         box = torch.cat(blocks)
+         dist.recv(box, source)
+         got[source] = box.chunk(n)[rank].clone()
"""
