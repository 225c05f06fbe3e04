"""Diagnosis: 03.remembers

Remembered by the number of ranks and bytes alone: another link has the first one's time.
"""

import torch
import torch.distributed as dist
from torch import nn

_known = {}


def star_seconds(n, nbytes, alpha, beta):
    if (n, nbytes) not in _known:
        _known[n, nbytes] = 2 * (alpha + (n - 1) * nbytes * beta) if n > 1 else 0.0
    return _known[n, nbytes]
