"""Diagnosis: 03.alone

The factor in the denominator, as its inverse: right for two ranks and more, and a division by
zero for one.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return nbytes / (seconds * n / (2 * (n - 1)))
