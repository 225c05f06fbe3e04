"""Answers to my_gather."""

import torch
import torch.distributed as dist


def all_at_once(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.isend(tensor.contiguous(), dst).wait()
        return None
    boxes = [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(n)]
    boxes[rank].copy_(tensor)
    works = [dist.irecv(boxes[r], r) for r in range(n) if r != rank]
    for work in works:
        work.wait()
    return boxes


def by_object(tensor, dst):
    if dist.get_rank() != dst:
        return dist.send_object_list([tensor.contiguous()], dst)
    everybody = [[tensor.clone()] for _ in range(dist.get_world_size())]
    for other, parcel in enumerate(everybody):
        if other != dst:
            dist.recv_object_list(parcel, other)
    return [parcel[0] for parcel in everybody]


WRONG = """
== solution
own_missing, own-missing: only what comes in a message is put into the list
~         everybody.append(entry) =>             everybody.append(entry)
as_they_come, misplaced: a recv without src takes what comes first
~ dist.recv(entry, src=other) => dist.recv(entry)
everywhere, list-everywhere: an empty list seems to be as good as None
~ return None => return []
== all_at_once
times_n, one-buffer: a list times n is n times the same tensor: here several irecvs fill it
- [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(n)]
+ [torch.empty(tensor.shape, dtype=tensor.dtype)] * n
reads_early, read-before-wait: the waits come after the copy
      works = [dist.irecv(boxes[r], r) for r in range(n) if r != rank]
+     boxes = [box.clone() for box in boxes]
"""
