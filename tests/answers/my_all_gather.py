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


def in_a_batch(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    rows = torch.empty((n, *tensor.shape), dtype=tensor.dtype)
    rows[rank] = tensor
    talk = [dist.P2POp(dist.isend, tensor.contiguous(), r) for r in range(n) if r != rank]
    talk += [dist.P2POp(dist.irecv, rows[r], r) for r in range(n) if r != rank]
    for work in dist.batch_isend_irecv(talk) if talk else []:
        work.wait()
    return list(rows.unbind(0))


def ring(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    boxes = [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(n)]
    boxes[rank].copy_(tensor)
    for step in range(n - 1):
        going = dist.isend(boxes[(rank - step) % n], (rank + 1) % n)
        dist.recv(boxes[(rank - step - 1) % n], (rank - 1) % n)
        going.wait()
    return boxes


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


OTHERS = "tensor.contiguous(), r) for r in range(n) if r != rank]"
BACK = "        for other in range(last):\n            dist.send(pile, other)\n"
WRONG = {
    "send_first": ("ring", "02.send-first", "isend and its wait are a send",
                   ("going = dist.isend(", "dist.send("), ("        going.wait()\n", "")),
    "times_n": ("in_a_batch", "02.one-buffer", "a list times n is n times the same tensor",
                ("    rows = torch.empty((n, *tensor.shape), dtype=tensor.dtype)\n",
                 "    rows = [torch.empty(tensor.shape, dtype=tensor.dtype)] * n\n"),
                ("    rows[rank] = tensor\n", "    rows[rank] = tensor.clone()\n"),
                ("list(rows.unbind(0))", "rows")),
    "nobody_told": ("root_and_back", "02.one-rank-alone", "a gather, and nobody tells the others",
                    (BACK, ""), ("        dist.recv(pile, last)\n", "")),
    "off_by_one": ("ring", "02.misplaced", "the indices of the ring are one off",
                   ("    return boxes", "    return boxes[1:] + boxes[:1]")),
    "own_is_argument": ("by_turns", "02.shares-memory", "its own entry is the caller's tensor",
                        ("            for listener", "            box = tensor\n            for "
                         "listener")),
    "to_itself": ("in_a_batch", "02.talks-to-itself", "everybody is sent to, oneself too",
                  (OTHERS, "tensor.contiguous(), r) for r in range(n)]")),
    "never_waits": ("ring", "02.never-waited", "what has come is all that one looks at",
                    ("        going.wait()\n", "")),
    "own_missing_strided": ("by_turns", "02.own-missing", "two at once: only what comes is put "
                            "into the list, and the inbox keeps the strides",
                            ("        everybody.append(box)", "            everybody.append(box)"),
                            ("clone(memory_format=torch.contiguous_format)", "clone()")),
    "own_again": ("ring", "02.same-again", "each step sends the rank's own tensor",
                  ("isend(boxes[(rank - step) % n]", "isend(boxes[rank]")),
}  # fmt: skip
