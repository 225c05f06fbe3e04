"""One rank comes to the end of its script, with code 0, while the other still needs it.

told: rank 0 waits for rank 1, which has already returned
"""

import atexit
import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 1:
        atexit.register(lambda: print("cause", time.time(), flush=True))  # until then it may call
        return
    time.sleep(0.2)
    dist.all_reduce(torch.ones(4))  # told


main()
