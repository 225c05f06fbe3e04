"""Answers to one_f_one_b."""

import torch
import torch.distributed as dist


def batched(stage, inputs, targets, m, shape, loss):
    rank, n = dist.get_rank(), dist.get_world_size()
    is_last, kept, sent, total = rank == n - 1, [], [], 0.0

    def talk(peer, send=None, receives=False):
        """Send a tensor to a neighbour, receive one from it, or both at once."""
        if not 0 <= peer < n:
            return None
        ops, inbox = [], torch.empty(shape)
        if send is not None:
            ops.append(dist.P2POp(dist.isend, send, peer))
        if receives:
            ops.append(dist.P2POp(dist.irecv, inbox, peer))
        works = dist.batch_isend_irecv(ops) if ops else []
        if receives:
            [work.wait() for work in works]
        else:
            sent.extend(works)
        return inbox

    def forward(i, x):
        x = inputs[i] if rank == 0 else x.requires_grad_()
        y = stage(x)
        if is_last:
            y = loss(y, targets[i]) / m
        kept.append((x, y))
        return y.detach()

    def backward(g):
        x, y = kept.pop(0)
        y.backward(g)
        return x.grad

    warm_up = min(m, n - 1 - rank)
    for i in range(warm_up):
        y = forward(i, talk(rank - 1, receives=True))
        talk(rank + 1, send=y)
    x = talk(rank - 1, receives=True) if warm_up < m else None
    for i in range(warm_up, m):
        y = forward(i, x)
        if is_last:
            total += y.item()
        g = talk(rank + 1, send=y, receives=True)
        x = talk(rank - 1, send=backward(g), receives=i < m - 1)
    for _ in range(warm_up):
        g = talk(rank + 1, receives=True)
        talk(rank - 1, send=backward(g))
    [work.wait() for work in sent]
    return total if is_last else None


def by_list(stage, inputs, targets, m, shape, loss):
    rank, n = dist.get_rank(), dist.get_world_size()
    warm_up = min(m, n - rank)
    order = "F" * warm_up + "BF" * (m - warm_up) + "B" * warm_up
    kept, losses, sent = [], [], []
    outbox = None  # what the next receive from that neighbour takes along
    forwards = backwards = 0

    def swap(peer, gives, takes):
        nonlocal outbox
        inbox, ops = torch.empty(shape), []
        if gives and outbox is not None and outbox[1] == peer:
            ops.append(dist.P2POp(dist.isend, outbox[0], peer))
            outbox = None
        if takes:
            ops.append(dist.P2POp(dist.irecv, inbox, peer))
        works = dist.batch_isend_irecv(ops) if ops else []
        if takes:
            [work.wait() for work in works]
        else:
            sent.extend(works)
        return inbox

    for what, following in zip(order, order[1:] + " ", strict=True):
        if what == "F":
            x = inputs[forwards] if rank == 0 else swap(rank - 1, True, True).requires_grad_()
            y = stage(x)
            if rank == n - 1:
                losses.append(loss(y, targets[forwards]))
                y = losses[-1] / m
            else:
                outbox = y.detach(), rank + 1
                if following != "B":
                    swap(rank + 1, True, False)
            kept.append((x, y))
            forwards += 1
        else:
            g = swap(rank + 1, True, True) if rank < n - 1 else None
            x, y = kept[backwards]
            kept[backwards] = None
            y.backward(g)
            if rank:
                outbox = x.grad, rank - 1
                if following != "F":
                    swap(rank - 1, True, False)
            backwards += 1
    [work.wait() for work in sent]
    return torch.stack(losses).mean().item() if losses else None


BATCH = "works = dist.batch_isend_irecv(ops) if ops else []"
WRONG = {
    "both_send": ("batched", "15.both-send", "send and recv are the calls that one knows "
                  "(pytorch#172668)",
                  (BATCH, "works = []\n        [op.op(op.tensor, op.peer).wait() for op in ops]")),
    "unbatched": ("batched", "15.unbatched", "right on gloo; hangs on NCCL (PiPPy#1088, "
                  "Megatron-LM#5240)",
                  (BATCH, "works = [op.op(op.tensor, op.peer) for op in ops]")),
    "gpipe": ("by_list", "15.gpipe", "all forwards, then all backwards: GPipe under another name",
              ("warm_up = min(m, n - rank)", "warm_up = m")),
    "one_too_many": ("by_list", "15.holds-more", "n − rank, and one to be on the safe side",
                     ("warm_up = min(m, n - rank)", "warm_up = min(m, n - rank + 1)")),
    "one_too_few": ("by_list", "15.slow", "the warm-up is counted from the next stage",
                    ("warm_up = min(m, n - rank)", "warm_up = min(m, max(1, n - rank - 1))")),
    "warm_up_beyond_m": ("batched", "15.few-micro-batches", "nobody tries few "
                         "micro-batches (torchtitan#775)",
                         ("warm_up = min(m, n - 1 - rank)", "warm_up = n - 1 - rank")),
    "last_forgotten": ("batched", "15.waits-for-more", "the warm-up counts from 0, the cool-down "
                       "from 1", ("    for _ in range(warm_up):\n",
                       "    for _ in range(1, warm_up):\n")),
    "no_leaf": ("by_list", "15.no-gradient-at-a-boundary", "what is received is a plain tensor",
                ("swap(rank - 1, True, True).requires_grad_()", "swap(rank - 1, True, True)")),
    "mean_of_sums": ("by_list", "15.sum", "the loss that is shown is a mean, and the one that goes "
                     "back is not", ("y = losses[-1] / m", "y = losses[-1]")),
    "one_inbox": ("batched", "15.one-buffer-for-all", "a buffer for each neighbour",
                  ("    def talk(", "    boxes = {}\n\n    def talk("),
                  ("ops, inbox = [], torch.empty(shape)",
                   "ops, inbox = [], boxes.setdefault(peer, torch.empty(shape)).detach()")),
}  # fmt: skip
