"""Answers to my_gather."""

import torch
import torch.distributed as dist


def flat(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = []
    for other in range(n):
        box = tensor.clone(memory_format=torch.contiguous_format)
        if other != dst:
            dist.recv(box, other)
        everybody.append(box)
    return everybody


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


def chain(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % n  # dst comes last
    pile = torch.empty((place + 1, *tensor.shape), dtype=tensor.dtype)
    pile[place] = tensor
    if place > 0:
        dist.recv(pile[:place], (rank - 1) % n)
    if rank != dst:
        dist.send(pile, (rank + 1) % n)
        return None
    return [pile[(r - dst - 1) % n] for r in range(n)]


def by_object(tensor, dst):
    if dist.get_rank() != dst:
        return dist.send_object_list([tensor.contiguous()], dst)
    everybody = [[tensor.clone()] for _ in range(dist.get_world_size())]
    for other, parcel in enumerate(everybody):
        if other != dst:
            dist.recv_object_list(parcel, other)
    return [parcel[0] for parcel in everybody]


BOXES = "[torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(n)]"
WRONG = {
    "times_n": ("all_at_once", "02.one-buffer", "a list times n is n times the same tensor: here "
                "several irecvs fill it",
                (BOXES, "[torch.empty(tensor.shape, dtype=tensor.dtype)] * n")),
    "own_is_argument": ("flat", "02.shares-memory", "the rank's own entry is the caller's tensor",
                        ("append(box)", "append(box if other != dst else tensor)")),
    "own_missing": ("flat", "02.own-missing", "only what comes in a message is put into the list",
                    ("        everybody.append(box)", "            everybody.append(box)")),
    "as_they_come": ("flat", "02.misplaced", "a recv without src takes what comes first",
                     ("dist.recv(box, other)", "dist.recv(box)")),
    "everywhere": ("flat", "02.list-everywhere", "an empty list seems to be as good as None",
                   ("return None", "return []")),
    "from_itself": ("flat", "02.talks-to-itself", "dst asks everybody, itself too",
                    ("if other != dst:", "if True:")),
    "reads_early": ("all_at_once", "02.read-before-wait", "the waits come after the copy",
                    ("    for work in works:\n", "    boxes = [box.clone() for box in boxes]\n"
                     "    for work in works:\n")),
    "strided": ("all_at_once", "02.strided", "strided tensors are sent as they lie",
                ("dist.isend(tensor.contiguous(), dst)", "dist.isend(tensor, dst)")),
    "to_rank_0": ("flat", "02.other-root", "rank 0 for dst",
                  ("rank != dst:\n        dist.send(tensor.contiguous(), dst)",
                   "rank != 0:\n        dist.send(tensor.contiguous(), 0)"),
                  ("other != dst", "other != 0")),
}  # fmt: skip
