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


LOWER = "dist.get_rank() < partner"
CONTIGUOUS = ", memory_format=torch.contiguous_format"
WRONG = {
    "send_first": ("lower_first", "01.send-first", "it works with small messages on many an MPI, "
                   "which stores them; the standard calls it unsafe (MPI 4.0, section 3.5)",
                   (LOWER, "True")),
    "receive_first": ("lower_first", "01.receive-first", "first I listen, then I speak",
                      (LOWER, "False")),
    "by_parity": ("lower_first", "01.in-step", "the rule for a ring, where neighbours differ in "
                  "parity; partners need not", (LOWER, "dist.get_rank() % 2 == 0")),
    "reads_before_wait": ("both_at_once", "01.read-before-wait", "tutorials#3009 shows a reader "
                          "who stumbles over the sentence that warns of it",
                          ("        coming.wait()\n        going.wait()\n", "        inbox = "
                           "inbox.clone()\n        coming.wait()\n        going.wait()\n")),
    "never_waits": ("both_at_once", "01.never-waited", "the answer is there, so why wait for the "
                    "other message?", ("        going.wait()\n", "")),
    "one_buffer": ("in_a_batch", "01.written-before-wait", "one tensor seems to be enough",
                   ("inbox = outbox.clone()", "inbox = outbox")),
    "strided": ("lower_first", "01.strided", "empty_like keeps the strides, and only what leaves "
                "is made contiguous", (CONTIGUOUS, "")),
    "sends_to_itself": ("both_at_once", "01.talks-to-itself", "a partner is a partner",
                        ("partner != dist.get_rank()", "True")),
    "same_when_alone": ("lower_first", "01.shares-memory", "a copy was read as: the same",
                        ("mine.clone()", "mine")),
    "own_and_strided": ("lower_first", "01.returns-own", "two at once: the wrong tensor returned, "
                        "and empty_like keeps strides", ("return inbox", "return mine.clone()"),
                        (CONTIGUOUS, "")),
    "floats": ("both_at_once", "01.only-int64-or-bfloat16", "zeros() makes float32",
               ("torch.zeros(mine.shape, dtype=mine.dtype)", "torch.zeros(mine.shape)")),
    "doubles": ("lower_first", "01.two-dtypes", "an inbox of another dtype",
                ("torch.empty_like(mine, memory_format=torch.contiguous_format)",
                 "torch.empty(mine.shape, dtype=torch.float64)")),
}  # fmt: skip
