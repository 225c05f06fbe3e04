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


ADDS = "chunks[into] += inbox"
WRONG = {
    "wrong_buffer": ("owns_the_next", "04.wrong-buffer", "the classic tutorial's mistake "
                     "(pytorch/pytorch#31572)", (ADDS, "chunks[into] += chunks[out]")),
    "other_way": ("owns_the_next", "04.wrong-chunk", "the chunks go one way, and the messages the "
                  "other", ("(rank - step) % n, (rank - step - 1)",
                            "(rank + step) % n, (rank + step + 1)")),
    "new_entries": ("owns_the_next", "04.replaced", "a = a + b makes a new tensor",
                    (ADDS, "chunks[into] = chunks[into] + inbox")),
    "sends_first": ("owns_the_next", "04.send-first", "isend().wait() is a send with more letters",
                    ("(rank + 1) % n)\n", "(rank + 1) % n)\n        going.wait()\n")),
    "sent_away": ("owns_the_next", "04.wrong-index", "after n - 1 steps rank r has finished the "
                  "chunk r + 1, not r", ("return (rank + 1) % n", "return rank")),
    "all_at_one": ("straight_to_the_owner", "04.owners", "everybody names the same chunk",
                   ("    return rank", "    return 0")),
    "the_chunk": ("owns_the_next", "04.wrong-type", "the chunk where its index is asked for",
                  ("return (rank + 1) % n", "return chunks[(rank + 1) % n].clone()")),
    "the_collective": ("straight_to_the_owner", "04.collective", "the collective that contains it",
                       ("others =",
                        "return [dist.all_reduce(c) for c in chunks] and rank\n    others =")),
    "clears_what_it_sends": ("owns_the_next", "04.written-before-wait", "what was sent is no "
                          "longer needed here, one thinks", (ADDS, ADDS + "; chunks[out].zero_()")),
    "empty_not_sent": ("straight_to_the_owner", "04.only-few-or-empty", "an empty chunk is not "
                       "worth a message; its owner waits for it all the same",
                       ("for peer in others]", "for peer in others if len(chunks[peer])]")),
    "same_chunk": ("owns_the_next", "04.same-chunk", "its own chunk in every step",
                   ("(rank - step) % n, (rank - step - 1) % n", "rank, (rank - 1) % n")),
    "received_and_doubled": ("owns_the_next", "04.received-over-own", "recv into the chunk",
                             ("inbox = torch.empty_like(chunks[into])", "inbox = chunks[into]")),
}  # fmt: skip
