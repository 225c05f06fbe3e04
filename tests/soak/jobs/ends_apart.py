"""The ranks return from main at different times."""

import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank == 0:
        time.sleep(3)
    print("done", rank)


main()
