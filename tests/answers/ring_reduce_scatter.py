"""Answers to ring_reduce_scatter."""

import torch
import torch.distributed as dist


def owns_the_next(chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    for step in range(n - 1):
        out, into = (rank - step) % n, (rank - step - 1) % n
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)
        chunks[into] += inbox
        going.wait()
    return (rank + 1) % n


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
== owns_the_next
wrong_buffer, wrong-buffer: the classic tutorial's mistake (pytorch/pytorch#31572)
~ chunks[into] += inbox => chunks[into] += chunks[out]
other_way, wrong-chunk: the chunks go one way, and the messages the other
~ (rank - step) % n, (rank - step - 1) => (rank + step) % n, (rank + step + 1)
sends_first, send-first: isend().wait() is a send with more letters
  (rank + 1) % n)
+         going.wait()
sent_away, wrong-index: after n - 1 steps rank r has finished the chunk r + 1, not r
~ return (rank + 1) % n => return rank
clears_what_it_sends, written-before-wait: what was sent is no longer needed here, one thinks
~ chunks[into] += inbox => chunks[into] += inbox; chunks[out].zero_()
received_and_doubled, received-over-own: recv into the chunk
~ inbox = torch.empty_like(chunks[into]) => inbox = chunks[into]
== straight_to_the_owner
all_at_one, owners: everybody names the same chunk
~     return rank =>     return 0
empty_not_sent, only-few-or-empty: an empty chunk is not worth a message; its owner waits for it all
the same
~ for peer in others] => for peer in others if len(chunks[peer])]
"""
