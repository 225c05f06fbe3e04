"""Answers to my_reduce_scatter."""

import torch
import torch.distributed as dist


def in_a_batch(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    size, talk = tensor.shape[0] // n, []
    rows = torch.zeros((n, size, *tensor.shape[1:]), dtype=tensor.dtype)
    rows[rank] = tensor[rank * size : (rank + 1) * size]
    for r in range(n):
        if r != rank:
            part = tensor[r * size : (r + 1) * size].contiguous()
            talk.append(dist.P2POp(dist.irecv, rows[r], r))
            talk.append(dist.P2POp(dist.isend, part, r))
    for work in dist.batch_isend_irecv(talk) if talk else []:
        work.wait()
    return rows.sum(0).to(tensor.dtype)


def ring(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    blocks = tensor.tensor_split(n)
    partial = blocks[rank - 1].clone(memory_format=torch.contiguous_format)
    for step in range(1, n):
        inbox = torch.empty_like(partial)
        going = dist.isend(partial, (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)
        going.wait()
        partial = inbox + blocks[(rank - step - 1) % n]
    return partial


WRONG = """
== solution
star, through-one: reduced to rank 0, and then scattered
      total = owed[rank].clone()
+     if rank:
+         dist.send(tensor.contiguous(), 0)
+         dist.recv(total, 0)
+         return total
+     total, inbox = tensor.clone(), tensor.new_empty(tensor.shape)
+     for other in range(1, size):
+         dist.recv(inbox, other)
+         total += inbox
+     for other in range(1, size):
+         dist.send(total.chunk(size)[other].contiguous(), other)
+     return total.chunk(size)[0].clone()
split, index: split(n) is taken for n parts; it makes parts of n elements
~ tensor.tensor_split(size) => tensor.split(size)
whole, mismatch: the whole tensor is sent where a block is taken
~ dist.isend(owed[other], => dist.isend(tensor.contiguous().view(-1),
everything, whole-tensors: everybody adds up everything
~ dist.isend(owed[other], => dist.isend(tensor.contiguous(),
~ torch.empty_like(total) => torch.empty(tensor.shape, dtype=tensor.dtype)
~ total += inbox => total += inbox.chunk(size)[rank]
== ring
wrong_block, wrong-block: the ring starts one block later
~ blocks[rank - 1] => blocks[rank]
~ (rank - step - 1) => (rank - step)
"""
