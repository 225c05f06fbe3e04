"""torch splits in the same way; the ends are read from its pieces."""

import torch
import torch.distributed as dist


def my_share(n_items: int) -> range:
    pieces = torch.arange(n_items).tensor_split(dist.get_world_size())
    start = sum(len(piece) for piece in pieces[: dist.get_rank()])
    return range(start, start + len(pieces[dist.get_rank()]))
