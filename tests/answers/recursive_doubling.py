"""Answers to recursive_doubling."""

import torch
import torch.distributed as dist


def folded(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    power = 1 << (n.bit_length() - 1)
    mine = tensor.clone(memory_format=torch.contiguous_format)
    inbox = torch.empty_like(mine)
    if rank >= power:
        dist.send(mine, rank - power)
        dist.recv(mine, rank - power)
    else:
        if rank + power < n:
            dist.recv(inbox, rank + power)
            mine += inbox
        distance = 1
        while distance < power:
            going = dist.isend(mine, rank ^ distance)
            dist.recv(inbox, rank ^ distance)
            going.wait()
            mine += inbox
            distance *= 2
        if rank + power < n:
            dist.send(mine, rank + power)
    tensor.copy_(mine)


def in_pairs(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    power = 2 ** (n.bit_length() - 1)
    extra, box = n - power, tensor.contiguous()
    inbox = box.clone()
    plays = rank >= 2 * extra or rank % 2 == 1  # of the first pairs, the odd one plays for both
    if rank < 2 * extra:
        if plays:
            dist.recv(inbox, rank - 1)
            box.add_(inbox)
        else:
            dist.send(box, rank + 1)
    place = rank - extra if rank >= 2 * extra else rank // 2
    for k in reversed(range(n.bit_length() - 1)):
        if plays:
            other = place ^ (1 << k)
            peer = 2 * other + 1 if other < extra else other + extra
            ops = [dist.P2POp(dist.isend, box, peer), dist.P2POp(dist.irecv, inbox, peer)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            box.add_(inbox)
    if rank < 2 * extra:
        if plays:
            dist.send(box, rank - 1)
        else:
            dist.recv(box, rank + 1)
    if box is not tensor:
        tensor.copy_(box)


GOING = """            going = dist.isend(mine, rank ^ distance)
            dist.recv(inbox, rank ^ distance)
            going.wait()
"""
ONE_WAY = """            if rank & distance:
                dist.send(mine, rank ^ distance)
            dist.recv(inbox, rank ^ distance)
            if not rank & distance:
                dist.send(mine, rank ^ distance)
"""
RING = """    total, passing = mine, mine.clone()
    for _ in range(n - 1):
        going = dist.isend(passing, (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)
        going.wait()
        total = total + inbox
        passing = inbox.clone()
    tensor.copy_(total)
    return
    if rank >= power:"""
AROUND = """    distance = 1
    while distance < n:
        going = dist.isend(mine, (rank + distance) % n)
        dist.recv(inbox, (rank - distance) % n)
        going.wait()
        mine += inbox
        distance *= 2
    tensor.copy_(mine)
    return
    if rank >= power:"""
STAR = """    boxes = [mine, *(mine.clone() for _ in range(n - 1))]
    others = range(1, n) if rank == 0 else [0]
    for work in [dist.irecv(boxes[other], other) for other in others if rank == 0]:
        work.wait()
    total = sum(boxes) if rank == 0 else mine
    for work in [dist.isend(total, other) for other in others]:
        work.wait()
    if rank:
        dist.recv(total, 0)
    tensor.copy_(total)
    return
    if rank >= power:"""
EVERYONE = """    boxes = [mine.clone() for _ in range(n)]
    others = [other for other in range(n) if other != rank]
    works = [dist.isend(mine, other) for other in others]
    works += [dist.irecv(boxes[other], other) for other in others]
    for work in works:
        work.wait()
    tensor.copy_(sum(boxes[1:], boxes[0]))
    return
    if rank >= power:"""
WRONG = {
    "nobody_tells_the_extra": ("folded", "09.not-told", "the sum is done, one thinks",
                               ("\n        dist.recv(mine, rank - power)", ""),
                               ("            dist.send(mine, rank + power)", "            pass")),
    "round_the_clock": ("folded", "09.twice", "to rank + 1, + 2, + 4, as a barrier does it",
                        ("    if rank >= power:", AROUND)),
    "own_order": ("folded", "09.bits-differ", "each rank adds what comes round to its own, in its "
                  "own order: pytorch/pytorch#129501", ("    if rank >= power:", RING)),
    "one_way_at_a_time": ("folded", "09.too-many-rounds", "send and recv in turn, as in lesson 01",
                          (GOING, ONE_WAY)),
    "both_send_first": ("folded", "09.send-first", "send for isend",
                        ("going = dist.isend(mine, rank ^ distance)", "dist.send(mine, rank ^ "
                         "distance)"), ("            going.wait()\n", "")),
    "no_partner": ("folded", "09.no-such-rank", "rank ^ distance is taken for a rank that there is",
                   ("1 << (n.bit_length() - 1)", "1 << (n - 1).bit_length()")),
    "adds_into_what_is_sent": ("folded", "09.written-before-wait", "waits once it is all done",
                               ("            going.wait()\n            mine += inbox\n",
                                "            mine += inbox\n            going.wait()\n")),
    "star": ("folded", "09.star", "as few messages as allowed, for up to five ranks, and latencies "
             "that overlap", ("    if rank >= power:", STAR)),
    "everyone": ("folded", "09.everyone", "one round, and latencies that overlap",
                 ("    if rank >= power:", EVERYONE)),
    "sends_float64": ("folded", "09.long-message", "added up in float64, and sent so",
                      ("mine = tensor.clone(memory_format=torch.contiguous_format)",
                       "mine = tensor.double().contiguous()")),
    "sixteen": ("folded", "09.only-more-than-32-ranks", "a power of two looked up in a table",
                ("1 << (n.bit_length() - 1)", "max(p for p in (1, 2, 4, 8, 16) if p <= n)")),
    "round_short": ("folded", "09.round-short", "distances below a half",
                    ("while distance < power:", "while 2 * distance < power:")),
    "collective": ("in_pairs", "09.collective", "the call that it stands for",
                   ("    extra, box", "    return dist.all_reduce(tensor)\n    extra, box")),
}  # fmt: skip
