"""Diagnosis: 03.values-differ

A search between 0 and 1 GiB, where every link of today has its answer, and a satellite has not.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    low, high = 0.0, 2.0**30
    for _ in range(2000):
        middle = (low + high) / 2
        if middle * beta < alpha:
            low = middle
        else:
            high = middle
    return high if alpha > 0 else 0.0
