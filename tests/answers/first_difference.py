"""Answers to first_difference."""

import hashlib

import torch
import torch.distributed as dist


def all_digests_at_once(model):
    digests = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        digests[name] = hashlib.sha256(bytes(raw.tolist())).digest()
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, list(digests.values()))
    for k, name in enumerate(digests):
        for rank, theirs in enumerate(every):
            if theirs[k] != every[0][k]:
                return name, rank
    return None


def one_by_one(model):
    n = dist.get_world_size()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        raw = tensor.detach().flatten().contiguous()
        digest = hashlib.md5(raw.view(torch.uint8).numpy().tobytes()).digest()
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
        every = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(every, mine)
        wrong = [rank for rank in range(n) if not torch.equal(every[rank], every[0])]
        if wrong:
            return name, min(wrong)
    return None


def rank_0_compares(model):
    rank, n = dist.get_rank(), dist.get_world_size()
    names, digests = [], []
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        data = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        names.append(name)
        digests.append(list(hashlib.blake2b(data, digest_size=16).digest()))
    mine = torch.tensor(digests, dtype=torch.uint8).flatten()
    every = [torch.empty_like(mine) for _ in range(n)] if rank == 0 else None
    dist.gather(mine, every, dst=0)
    found = torch.tensor([-1, -1])
    if rank == 0:
        for k in reversed(range(len(names))):
            for other in reversed(range(n)):
                if not torch.equal(every[other].view(-1, 16)[k], every[0].view(-1, 16)[k]):
                    found = torch.tensor([k, other])
    dist.broadcast(found, 0)
    k, other = found.tolist()
    return (names[k], other) if other >= 0 else None


PARTS = "(*model.named_parameters(), *model.named_buffers())"
BYTES = "hashlib.sha256(bytes(raw.tolist())).digest()"
RAW = "tensor.detach().contiguous().reshape(-1).view(torch.uint8)"
WRONG = {
    "hash_of_bytes": ("all_digests_at_once", "11.salted-hash", "hash() is the shortest digest",
                      (BYTES, "hash(bytes(raw.tolist()))")),
    "of_text": ("all_digests_at_once", "11.as-text", "print shows the same, so it is the same",
                (BYTES, "hashlib.sha256(str(tensor).encode()).digest()")),
    "sums": ("all_digests_at_once", "11.sums", "a checksum that adds",
             (BYTES, "tensor.double().sum().item()")),
    "nearly": ("all_digests_at_once", "11.tolerance", "floats are rounded before they are compared",
               (RAW, "(tensor.detach().double() * 1000).round().long().flatten() % 251")),
    "as_float32": ("all_digests_at_once", "11.through-float32", "every model is float32",
                   (RAW, RAW.replace("detach()", "detach().float()"))),
    "as_saved": ("all_digests_at_once", "11.state-dict-order", "the state_dict is the model",
                 (PARTS, "model.state_dict().items()")),
    "only_saved": ("all_digests_at_once", "11.saved-only", "the right order, the tensors of a file",
                   (PARTS, f"(x for x in {PARTS} if x[0] in model.state_dict())")),
    "leaves_the_loop": ("one_by_one", "11.not-everybody", "whoever differs from rank 0 leaves",
                        ("        if wrong:\n", "        if dist.get_rank() in wrong:\n")),
    "local": ("all_digests_at_once", "11.local", "each rank compares itself with rank 0",
              ("            if theirs[k]", "            if rank == dist.get_rank() and theirs[k]")),
    "tensors_travel": ("one_by_one", "11.sends-tensors", "gather everything, compare, discard",
                       ("torch.frombuffer(bytearray(digest), dtype=torch.uint8)",
                        "raw.view(torch.uint8)")),
    "only_rank_0_knows": ("rank_0_compares", "11.one-rank-alone", "who compares knows",
                          ("    dist.broadcast(found, 0)\n", "")),
    "crc32": ("all_digests_at_once", "11.checksum", "archives check their files so",
              (BYTES, "__import__('zlib').crc32(bytes(raw.tolist()))")),
}  # fmt: skip
