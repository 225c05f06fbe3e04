"""Answers to ring_all_reduce."""

import torch
import torch.distributed as dist


def in_two_halves(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(n))
    for step in range(n - 1):
        out, into = (rank - step) % n, (rank - step - 1) % n
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)
        chunks[into] += inbox
        going.wait()
    for step in range(n - 1):
        out, into = (rank + 1 - step) % n, (rank - step) % n
        sent = dist.isend(chunks[out], (rank + 1) % n)
        dist.recv(chunks[into], (rank - 1) % n)
        sent.wait()
    tensor.copy_(flat.reshape(tensor.shape))


def to_the_left(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = [part.clone() for part in tensor.flatten().tensor_split(n)]
    first = rank % 2 == 0  # to send: nothing is asynchronous
    for k in range(2 * (n - 1)):
        out, into = (rank + k) % n, (rank + k + 1) % n
        inbox = torch.zeros_like(chunks[into])
        if first:
            dist.send(chunks[out], (rank - 1) % n)
        dist.recv(inbox, (rank + 1) % n)
        if not first:
            dist.send(chunks[out], (rank - 1) % n)
        chunks[into] = chunks[into] + inbox if k < n - 1 else inbox
    tensor.copy_(torch.cat(chunks).view_as(tensor))


def nothing_empty_sent(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(n)
    for step in range(2 * (n - 1)):
        out, into = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        inbox = torch.empty_like(into)
        ops = [dist.P2POp(dist.isend, out, (rank + 1) % n)] if out.numel() else []
        ops += [dist.P2POp(dist.irecv, inbox, (rank - 1) % n)] if into.numel() else []
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        into.copy_(into + inbox if step < n - 1 else inbox)
    if flat.data_ptr() != tensor.data_ptr():
        tensor.copy_(flat.view(tensor.shape))


def padded(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    size = -(-tensor.numel() // n)
    flat = tensor.new_zeros(n * size)
    flat[: tensor.numel()] = tensor.reshape(-1)
    chunks, inbox = flat.view(n, size), tensor.new_empty(size)
    for step in range(2 * (n - 1)):
        going = dist.isend(chunks[(rank - step) % n], (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)
        going.wait()
        target = chunks[(rank - step - 1) % n]
        target.copy_(target + inbox if step < n - 1 else inbox)
    tensor.copy_(flat[: tensor.numel()].reshape(tensor.shape))


WRONG = """
== in_two_halves
classic_mended, whole-tensors: the tutorial's ring as it is now: right, and n/2 times the bytes
(pytorch/tutorials#1039)
-     flat = tensor.reshape(-1).clone()
+     first, second, total = (tensor.contiguous().clone() for _ in range(3))
+     for step in range(n - 1):
+         outbox, inbox = (first, second) if step % 2 == 0 else (second, first)
+         going = dist.isend(outbox, (rank + 1) % n)
+         dist.recv(inbox, (rank - 1) % n)
+         going.wait()
+         total += inbox
+     tensor.copy_(total)
+     return
+     flat = tensor
owner, unfinished: rank r begins the second half with chunk r
~ (rank + 1 - step) % n, (rank - step) % n => (rank - step) % n, (rank - step - 1) % n
never_waits, never-waited: recv waits, so the send must be done as well, one thinks
~         going.wait() =>
torch_chunk, only-fewer-chunks: torch.chunk makes at most n chunks, as its documentation says
~ flat.tensor_split(n) => flat.chunk(n)
rest_left_out, only-uneven-or-fewer-chunks: // drops the rest
~ flat.tensor_split(n) => flat[: len(flat) // n * n].tensor_split(n)
== padded
the_collective, collective: the shortest answer
      rank, n = dist.get_rank(), dist.get_world_size()
+     return dist.all_reduce(tensor)
== to_the_left
other_data, replaced: .data looks like a way to write into a tensor
~ tensor.copy_(torch.cat(chunks).view_as(tensor)) => tensor.data = torch.cat(chunks).view_as(tensor)
sends_first_and_wrong_buffer, send-first: two at once
~ first = rank % 2 == 0 => first = True
~ chunks[into] + inbox => chunks[into] + chunks[out]
"""
