"""A script that starts ranks of its own, whose group torchrun knows nothing of.

ranks: 1
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, file):
    store = dist.FileStore(file, 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    x = torch.ones(1) * rank
    dist.all_reduce(x)
    print("inner rank", rank, x.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (os.path.join(folder, "store"),), nprocs=2)
    print("all came back")
