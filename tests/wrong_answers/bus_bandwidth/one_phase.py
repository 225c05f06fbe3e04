"""Diagnosis: 03.one-phase

The factor of all_gather and reduce_scatter, from the same table of nccl-tests.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return nbytes / seconds * (n - 1) / n
