"""Answers to my_all_gather."""

import torch
import torch.distributed as dist


def by_turns(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    everybody = []
    for speaker in range(n):
        box = tensor.clone(memory_format=torch.contiguous_format)
        if rank == speaker:
            for listener in range(n):
                if listener != speaker:
                    dist.send(box, listener)
        else:
            dist.recv(box, speaker)
        everybody.append(box)
    return everybody


def root_and_back(tensor):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    pile = torch.stack([tensor] * (last + 1)).contiguous()
    if rank == last:
        for other in range(last):
            dist.recv(pile[other], other)
        for other in range(last):
            dist.send(pile, other)
    else:
        dist.send(tensor.contiguous(), last)
        dist.recv(pile, last)
    return [row.clone() for row in pile]


WRONG = """
== solution
off_by_one, misplaced: the indices of the ring are one off
~     return parts =>     return parts[1:] + parts[:1]
own_again, same-again: each step sends the rank's own tensor
~ isend(parts[(rank - step) % size] => isend(parts[rank]
== root_and_back
nobody_told, one-rank-alone: a gather, and nobody tells the others
-         for other in range(last):
-             dist.send(pile, other)
~         dist.recv(pile, last) =>
== by_turns
own_is_argument, shares-memory: its own entry is the caller's tensor
          if rank == speaker:
+             box = tensor
own_missing_strided, own-missing: two at once: only what comes is put into the list, and the inbox
keeps the strides
~         everybody.append(box) =>             everybody.append(box)
~ clone(memory_format=torch.contiguous_format) => clone()
"""
