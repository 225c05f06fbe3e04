"""Answers to ring_all_gather."""

import torch
import torch.distributed as dist


def from_the_owned_one(chunks, owned):
    rank, n = dist.get_rank(), dist.get_world_size()
    for step in range(n - 1):
        out, into = (owned - step) % n, (owned - step - 1) % n
        going = dist.isend(chunks[out], (rank + 1) % n)
        dist.recv(chunks[into], (rank - 1) % n)
        going.wait()


def told_by_each_owner(chunks, owned):
    rank, n = dist.get_rank(), dist.get_world_size()
    shift = (owned - rank) % n
    for owner in range(n):
        chunk = chunks[(owner + shift) % n]
        if owner != rank:
            dist.recv(chunk, owner)
        for peer in range(n):
            if owner == rank != peer:
                dist.send(chunk, peer)


def in_batches(chunks, owned):
    rank, n = dist.get_rank(), dist.get_world_size()
    for step in range(n - 1):
        target = chunks[(owned + step + 1) % n]
        inbox = torch.zeros_like(target)
        ops = [
            dist.P2POp(dist.isend, chunks[(owned + step) % n], (rank - 1) % n),
            dist.P2POp(dist.irecv, inbox, (rank + 1) % n),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        target.copy_(inbox)


WRONG = """
== from_the_owned_one
own_rank, assumes-owner: rank r owns chunk r, surely
~ (owned - step) % n, (owned - step - 1) % n => (rank - step) % n, (rank - step - 1) % n
sends_first, send-first: blocking sends all round
~ going = dist.isend => going = dist.send
~         going.wait() =>
== in_batches
adds, adds: a copy of the first half
~ .copy_(inbox) => .add_(inbox)
new_entries, left-unwritten: the inbox gets the name of the caller's chunk
~ target.copy_(inbox) => target = inbox
"""
