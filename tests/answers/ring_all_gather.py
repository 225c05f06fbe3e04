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


STEPS = "(owned - step) % n, (owned - step - 1) % n"
WRONG = {
    "own_rank": ("from_the_owned_one", "04.assumes-owner", "rank r owns chunk r, surely",
                 (STEPS, STEPS.replace("owned", "rank"))),
    "adds": ("in_batches", "04.adds", "a copy of the first half",
             (".copy_(inbox)", ".add_(inbox)")),
    "new_entries": ("in_batches", "04.left-unwritten", "the inbox gets the name of the caller's "
                    "chunk", ("target.copy_(inbox)", "target = inbox")),
    "sends_first": ("from_the_owned_one", "04.send-first", "blocking sends all round",
                    ("going = dist.isend", "going = dist.send"), ("        going.wait()\n", "")),
    "the_collective": ("told_by_each_owner", "04.collective", "a broadcast from each owner",
                       ("if owner != rank:",
                        "dist.broadcast(chunk, owner)\n        continue\n        if owner != "
                        "rank:")),
    "one_buffer": ("from_the_owned_one", "04.written-before-wait", "one buffer carries all chunks "
                   "on, and all waits are at the end",
                   ("    for step",
                    "    box, works = torch.empty_like(chunks[0]), []\n    for step"),
                   ("isend(chunks[out]", "isend(box.resize_(len(chunks[out])).copy_(chunks[out])"),
                   ("        going.wait()\n",
                    "        works.append(going)\n    for work in works:\n        work.wait()\n")),
}  # fmt: skip
