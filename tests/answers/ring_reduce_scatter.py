"""Answers to ring_reduce_scatter."""

import torch
import torch.distributed as dist


def owns_its_own(chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    now = (rank + 1) % n  # the ring the other way round: to the left
    while now != rank:
        ops = [dist.P2POp(dist.isend, chunks[now], (rank - 1) % n)]
        now = (now + 1) % n
        ops.append(dist.P2POp(dist.irecv, torch.empty_like(chunks[now]), (rank + 1) % n))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        chunks[now].add_(ops[1].tensor)
    return rank


def straight_to_the_owner(chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    others = [peer for peer in range(n) if peer != rank]
    works = [dist.isend(chunks[peer], peer) for peer in others]
    for peer in others:
        inbox = torch.empty_like(chunks[rank])
        dist.recv(inbox, peer)
        chunks[rank].add_(inbox)
    for work in works:
        work.wait()
    return rank


WRONG = """
== solution
wrong_buffer, wrong-buffer: the classic tutorial's mistake (pytorch/pytorch#31572)
~ chunks[before] += inbox => chunks[before] += chunks[now]
clears_what_it_sends, written-before-wait: what was sent is no longer needed here, one thinks
~         going.wait() =>         chunks[now].zero_(); going.wait()
== straight_to_the_owner
all_at_one, owners: everybody names the same chunk
~     return rank =>     return 0
empty_not_sent, only-few-or-empty: an empty chunk is not worth a message; its owner waits for it all
the same
~ for peer in others] => for peer in others if len(chunks[peer])]
"""
