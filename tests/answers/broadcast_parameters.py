"""Answers to broadcast_parameters."""

import torch
import torch.distributed as dist


def one_by_one(model, src=0):
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src)


def as_bytes(model, src=0):
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers())]
    raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in tensors]
    parcel = torch.cat([torch.zeros(1, dtype=torch.uint8), *raw])
    dist.broadcast(parcel, src)
    for tensor, part in zip(tensors, parcel[1:].split([len(r) for r in raw]), strict=True):
        tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))


def as_objects(model, src=0):
    parcel = [[t.detach() for t in (*model.parameters(), *model.buffers())]]
    dist.broadcast_object_list(parcel, src)
    with torch.no_grad():
        for tensor, came in zip((*model.parameters(), *model.buffers()), parcel[0], strict=True):
            tensor.copy_(came)


def sent_by_the_root(model, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    for tensor in [p.data for p in model.parameters()] + list(model.buffers()):
        inbox = torch.clone(tensor, memory_format=torch.contiguous_format)
        if rank != src:
            dist.recv(inbox, src)
        for dst in set(range(n)) - {src} if rank == src else ():
            dist.send(inbox, dst)
        tensor.copy_(inbox)


CALL = "dist.broadcast(tensor.detach(), src)"
ALL = "(*model.parameters(), *model.buffers())"
WRONG = {
    "root_calls": ("one_by_one", "05.not-everybody", "broadcast sounds like something that one "
                   "does", ("for tensor", "for tensor in () if dist.get_rank() != src else"),
                   (f" in {ALL}", f" {ALL}")),
    "not_copied_back": ("as_objects", "05.left-unwritten", "the message arrives, and a name is "
                        "given to it", ("tensor.copy_(came)", "tensor = came")),
    "state_dict": ("one_by_one", "05.only-buffers", "the state_dict is what gets saved, and a "
                   "buffer with persistent=False is not in it",
                   (ALL, "model.state_dict().values()")),
    "new_parameters": ("as_objects", "05.replaced", "an optimizer that was made before holds the "
                       "old ones, and trains them", ("tensor.copy_(came)", "tensor.data = came")),
    "a_contiguous_copy": ("one_by_one", "05.only-transposed", "contiguous() may be a copy, which "
                          "alone is overwritten then",
                          (CALL, "dist.broadcast(tensor.detach().contiguous(), src)")),
    "in_float32": ("as_bytes", "05.only-two-dtypes-or-large", "one float32 vector of everything",
                   (".view(torch.uint8) for", ".float() for"), ("1, dtype=torch.uint8", "1"),
                   ("part.clone().view(tensor.dtype)", "part")),
    "one_vector": ("one_by_one", "05.only-large", "torch.cat takes what differs in dtype to one "
                   "that does not hold all integers", ("    for tensor",
                   "    every = [*model.parameters(), *model.buffers()]\n    flat = torch.cat("
                   "[t.detach().flatten() for t in every])\n    dist.broadcast(flat, src)\n    "
                   "with torch.no_grad():\n        for t, part in zip(every, flat.split([t.numel() "
                   "for t in every])):\n            t.copy_(part.view(t.shape))\n    return\n"
                   "    for tensor")),
    "rank_0_sends_parameters": ("sent_by_the_root", "05.only-src", "two at once: the root is 0 in "
                          "every example where it sends, and buffers are forgotten",
                          ("if rank == src", "if rank == 0"), (" + list(model.buffers())", "")),
    "averages": ("one_by_one", "05.averages", "the mean is as equal as a copy", (
        f"for tensor in {ALL}:\n        {CALL}",
        "for p in model.parameters():\n        dist.all_reduce(p.data)\n"
        "        p.data /= dist.get_world_size()\n"
        "    for b in model.buffers():\n        dist.broadcast(b, src)")),
}  # fmt: skip
