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


def owner_by_owner(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    for owner in range(n):
        mine = tensor.tensor_split(n)[owner].clone(memory_format=torch.contiguous_format)
        if (rank - owner) % n != 1 % n:
            inbox = torch.empty_like(mine)
            dist.recv(inbox, (rank - 1) % n)
            mine += inbox
        if rank == owner:
            result = mine
        else:
            dist.send(mine, (rank + 1) % n)
    return result


GOING = "going = dist.isend(partial, (rank + 1) % n)"
STARTS = "blocks[rank].clone()"
STAR = """\
    if rank:
        dist.send(tensor.contiguous(), 0)
        dist.recv(mine := torch.empty_like(blocks[0]), 0)
        return mine
    total, inbox = tensor.clone(), tensor.new_empty(tensor.shape)
    for r in others:
        dist.recv(inbox, r)
        total += inbox
    for r in others:
        dist.send(total.chunk(n)[r].contiguous(), r)
    return total.chunk(n)[0].clone()
"""
WRONG = {
    "star": ("to_their_owners", "02.through-one", "reduced to rank 0, and then scattered",
             ("    going = ", STAR + "    going = ")),
    "split": ("to_their_owners", "02.index", "split(n) is taken for n parts; it makes parts of n "
              "elements", ("tensor.contiguous().chunk(n)", "tensor.contiguous().split(n)")),
    "send_first": ("ring", "02.send-first", "isend and its wait are a send",
                   (GOING, GOING.replace("going = dist.isend", "dist.send")),
                   ("        going.wait()\n", "")),
    "never_waits": ("to_their_owners", "02.never-waited", "what has come is all that one looks at",
                    ("    for work in going:\n        work.wait()\n", "")),
    "whole": ("to_their_owners", "02.mismatch", "the whole tensor is sent where a block is taken",
              ("dist.isend(blocks[r], r)", "dist.isend(tensor.contiguous().view(-1), r)")),
    "adds_into_it": ("owner_by_owner", "02.changes-argument", "a block is a view of the tensor",
                     ("[owner].clone(memory_format=torch.contiguous_format)", "[owner]")),
    "everything": ("to_their_owners", "02.whole-tensors", "everybody adds up everything",
                   ("dist.isend(blocks[r], r)", "dist.isend(tensor.contiguous(), r)"),
                   ("torch.empty_like(total)", "torch.empty(tensor.shape, dtype=tensor.dtype)"),
                   ("total += inbox", "total += inbox.chunk(n)[rank]")),
    "view_when_alone": ("to_their_owners", "02.shares-memory", "nothing to add, so nothing to copy",
                        (STARTS, f"{STARTS} if n > 1 else blocks[0]")),
    "strided": ("ring", "02.strided", "clone keeps the strides",
                ("clone(memory_format=torch.contiguous_format)", "clone()")),
    "wrong_block": ("ring", "02.wrong-block", "the ring starts one block later",
                    ("blocks[rank - 1]", "blocks[rank]"), ("(rank - step - 1)", "(rank - step)")),
    "unadded_alone": ("to_their_owners", "02.input-block", "two at once: what comes is not added, "
                      "and one rank gets a view", ("        total += inbox\n", ""),
                      (STARTS, f"{STARTS} if n > 1 else blocks[0]")),
    "own_left_out": ("to_their_owners", "02.own-missing", "only what comes is added up",
                     ("total = blocks[rank].clone()", "total = torch.zeros_like(blocks[rank])")),
}  # fmt: skip
