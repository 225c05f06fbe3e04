"""Diagnosis: 03.all-links

The bytes of all ranks together, which no single link has carried.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return nbytes * 2 * (n - 1) / seconds
