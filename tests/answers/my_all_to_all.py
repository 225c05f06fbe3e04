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


WRONG = """
== solution
the_collective, collective: the shortest answer
      arrived[rank].copy_(blocks[rank])
+     dist.all_to_all(arrived, [b.contiguous() for b in blocks])
+     return arrived
arrival_order, arrival-order: each block is appended when it comes
-     return arrived
+         came.append(arrived[source])
+     return came
      arrived[rank].copy_(blocks[rank])
+     came = [arrived[rank]]
everything, too-much: each rank sends all its blocks, and the receiver takes its own
~ leaving = dist.isend(blocks[to].contiguous(), to) => leaving = dist.isend(torch.cat(blocks), to)
-         dist.recv(arrived[source], source)
+         box = torch.cat(blocks)
+         dist.recv(box, source)
+         arrived[source] = box.chunk(n)[rank].clone()
== in_a_batch
own_sizes, lengths: what comes is taken to be as long as what goes: output splits are the transpose
of input splits (pytorch/pytorch#32361, #117486)
-     sizes = torch.zeros(n * n, dtype=torch.int64)
-     dist.all_gather_single(sizes, torch.tensor([len(block) for block in blocks]))
~ int(sizes[k * n + rank]) => len(blocks[k])
"""
