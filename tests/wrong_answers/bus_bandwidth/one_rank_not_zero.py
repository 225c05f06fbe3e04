"""Diagnosis: 03.alone

A special case for one rank that turns out as algbw: nothing was sent.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    if n == 1:
        return nbytes / seconds
    return nbytes / seconds * 2 * (n - 1) / n
