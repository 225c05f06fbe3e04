"""Answers to my_broadcast."""

import torch
import torch.distributed as dist


def tree(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, distance = (rank - src) % n, 1
    box = tensor.clone(memory_format=torch.contiguous_format)
    while distance < n:
        if place < distance and place + distance < n:
            dist.send(box, (rank + distance) % n)
        elif distance <= place < 2 * distance:
            dist.recv(box, (rank - distance) % n)
        distance *= 2
    tensor.copy_(box)


def in_pieces(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    box, talk = tensor.reshape(-1).clone(), []
    for i in range(0, len(box), 50):
        piece = box[i : i + 50]
        for other in range(n):
            if rank == src != other:
                talk.append(dist.P2POp(dist.isend, piece, other, tag=i))
        if rank != src:
            talk.append(dist.P2POp(dist.irecv, piece, src, tag=i))
    for work in dist.batch_isend_irecv(talk) if talk else []:
        work.wait()
    tensor.copy_(box.reshape(tensor.shape))


WRONG = """
== solution
itself, talks-to-itself: everybody is sent to, src too
~ if other != src: => if True:
rebinds, left-unwritten: a name is given another tensor
~         tensor.copy_(inbox) =>         tensor = inbox
from_0, only-src: tried with src 0
~ if dist.get_rank() == src: => if dist.get_rank() == 0:
~ if other != src: => if other != 0:
~ dist.recv(inbox, src=src) => dist.recv(inbox, src=0)
writes_between, written-between: the tensor is taken for all of its memory
          tensor.copy_(inbox)
+         step = min(tensor.stride(), default=1)
+         if step > 1:
+             tensor.as_strided(tensor.shape, (step,), 0).fill_(99)
== tree
powers_of_two, only-no-power-of-two: the tree is right for 2, 4 and 8 ranks
~  and place + distance < n =>
"""
