"""Answers to my_reduce_scatter."""

import torch
import torch.distributed as dist


def to_their_owners(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    blocks = tensor.contiguous().chunk(n)
    others = [r for r in range(n) if r != rank]
    going = [dist.isend(blocks[r], r) for r in others]
    total = blocks[rank].clone()
    inbox = torch.empty_like(total)
    for r in others:
        dist.recv(inbox, r)
        total += inbox
    for work in going:
        work.wait()
    return total


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
== to_their_owners
star, through-one: reduced to rank 0, and then scattered
      others = [r for r in range(n) if r != rank]
+     if rank:
+         dist.send(tensor.contiguous(), 0)
+         dist.recv(mine := torch.empty_like(blocks[0]), 0)
+         return mine
+     total, inbox = tensor.clone(), tensor.new_empty(tensor.shape)
+     for r in others:
+         dist.recv(inbox, r)
+         total += inbox
+     for r in others:
+         dist.send(total.chunk(n)[r].contiguous(), r)
+     return total.chunk(n)[0].clone()
split, index: split(n) is taken for n parts; it makes parts of n elements
~ tensor.contiguous().chunk(n) => tensor.contiguous().split(n)
whole, mismatch: the whole tensor is sent where a block is taken
~ dist.isend(blocks[r], r) => dist.isend(tensor.contiguous().view(-1), r)
everything, whole-tensors: everybody adds up everything
~ dist.isend(blocks[r], r) => dist.isend(tensor.contiguous(), r)
~ torch.empty_like(total) => torch.empty(tensor.shape, dtype=tensor.dtype)
~ total += inbox => total += inbox.chunk(n)[rank]
own_left_out, own-missing: only what comes is added up
~ total = blocks[rank].clone() => total = torch.zeros_like(blocks[rank])
== ring
wrong_block, wrong-block: the ring starts one block later
~ blocks[rank - 1] => blocks[rank]
~ (rank - step - 1) => (rank - step)
"""
