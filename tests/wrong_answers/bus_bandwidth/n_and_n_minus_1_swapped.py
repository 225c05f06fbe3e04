"""Diagnosis: 03.swapped

From memory: something with n and n - 1.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    if n == 1:
        return 0.0
    return nbytes / seconds * 2 * n / (n - 1)
