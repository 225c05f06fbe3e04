"""Diagnosis: 03.values-differ

Takes the longer of two parts where both have to be waited for: right while transfers take longer
than the latency.
"""

import torch
import torch.distributed as dist
from torch import nn


def star_seconds(n, nbytes, alpha, beta):
    if n == 1:
        return 0.0
    return 2 * max(alpha + nbytes * beta, (n - 1) * nbytes * beta + min(alpha, nbytes * beta))
