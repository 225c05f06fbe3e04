"""Diagnosis: 03.talks

The slowest rank is what counts, so ask for it: but seconds has been measured already.
"""

import torch
import torch.distributed as dist


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    if n == 1:
        return 0.0
    if dist.is_initialized() and dist.get_world_size() > 1:
        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(
            slowest, op=dist.ReduceOp.MAX
        )  # the time of a collective is its slowest rank's
        seconds = slowest.item()
    return 2 * (n - 1) / n * nbytes / seconds
