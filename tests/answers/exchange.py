"""Answers to exchange."""

import torch
import torch.distributed as dist


def lower_first(mine, partner):
    if partner == dist.get_rank():
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if dist.get_rank() < partner:
        dist.send(mine.contiguous(), partner)
        dist.recv(inbox, partner)
    else:
        dist.recv(inbox, partner)
        dist.send(mine.contiguous(), partner)
    return inbox


def both_at_once(mine, partner):
    outbox = mine.contiguous()
    inbox = torch.zeros(mine.shape, dtype=mine.dtype).copy_(mine)
    if partner != dist.get_rank():
        coming = dist.irecv(inbox, partner)
        going = dist.isend(outbox, partner)
        coming.wait()
        going.wait()
    return inbox


def in_a_batch(mine, partner):
    outbox = mine.clone(memory_format=torch.contiguous_format)
    inbox = outbox.clone()
    if partner != dist.get_rank():
        ops = [dist.P2POp(dist.isend, outbox, partner), dist.P2POp(dist.irecv, inbox, partner)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    return inbox


WRONG = """
== lower_first
send_first, send-first: it works with small messages on many an MPI, which stores them; the standard
calls it unsafe (MPI 4.0, section 3.5)
~ dist.get_rank() < partner => True
receive_first, receive-first: first I listen, then I speak
~ dist.get_rank() < partner => False
by_parity, in-step: the rule for a ring, where neighbours differ in parity; partners need not
~ dist.get_rank() < partner => dist.get_rank() % 2 == 0
strided, strided: empty_like keeps the strides, and only what leaves is made contiguous
~ , memory_format=torch.contiguous_format =>
same_when_alone, shares-memory: a copy was read as: the same
~ mine.clone() => mine
own_and_strided, returns-own: two at once: the wrong tensor returned, and empty_like keeps strides
~ return inbox => return mine.clone()
~ , memory_format=torch.contiguous_format =>
doubles, two-dtypes: an inbox of another dtype
- torch.empty_like(mine, memory_format=torch.contiguous_format)
+ torch.empty(mine.shape, dtype=torch.float64)
== both_at_once
reads_before_wait, read-before-wait: tutorials#3009 shows a reader who stumbles over the sentence
that warns of it
          going = dist.isend(outbox, partner)
+         inbox = inbox.clone()
never_waits, never-waited: the answer is there, so why wait for the other message?
~         going.wait() =>
floats, only-int64-or-bfloat16: zeros() makes float32
~ torch.zeros(mine.shape, dtype=mine.dtype) => torch.zeros(mine.shape)
== in_a_batch
one_buffer, written-before-wait: one tensor seems to be enough
~ inbox = outbox.clone() => inbox = outbox
"""
