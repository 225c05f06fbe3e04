"""The agent is asked to end; each rank saves what it has, in a handler of its own.

asked: SIGTERM
"""

import signal
import sys
import time

import torch
import torch.distributed as dist


def save(*_):
    print("saved", dist.get_rank(), flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.barrier()
print("ready", flush=True)
time.sleep(60)
