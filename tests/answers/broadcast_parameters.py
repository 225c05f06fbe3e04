"""Answers to broadcast_parameters."""

import torch
import torch.distributed as dist
from torch import nn


def as_objects(model, src=0):
    parcel = [[t.detach() for t in (*model.parameters(), *model.buffers())]]
    dist.broadcast_object_list(parcel, src)
    with torch.no_grad():
        for tensor, came in zip((*model.parameters(), *model.buffers()), parcel[0], strict=True):
            tensor.copy_(came)


def sent_by_the_root(model, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    for tensor in [p.data for p in model.parameters()] + list(model.buffers()):
        inbox = torch.clone(tensor, memory_format=torch.contiguous_format)
        if rank != src:
            dist.recv(inbox, src)
        for dst in set(range(n)) - {src} if rank == src else ():
            dist.send(inbox, dst)
        tensor.copy_(inbox)


WRONG = """
== solution
root_calls, not-everybody: broadcast sounds like something that one does
~ for tensor => for tensor in () if dist.get_rank() != src else
~  in (*model.parameters(), *model.buffers()) =>  (*model.parameters(), *model.buffers())
state_dict, only-buffers: the state_dict is what gets saved, and a buffer with persistent=False is
not in it
~ (*model.parameters(), *model.buffers()) => model.state_dict().values()
a_contiguous_copy, only-transposed: contiguous() may be a copy, which alone is overwritten then
~ dist.broadcast(tensor.detach(), src) => dist.broadcast(tensor.detach().contiguous(), src)
== as_objects
new_parameters, replaced: an optimizer that was made before holds the old ones, and trains them
~ tensor.copy_(came) => tensor.data = came
== sent_by_the_root
rank_0_sends_parameters, only-src: two at once: the root is 0 in every example where it sends, and
buffers are forgotten
~ if rank == src => if rank == 0
~  + list(model.buffers()) =>
"""
