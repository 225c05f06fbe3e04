"""Diagnosis: 03.bits

Network cards are sold in Gb/s.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return 8 * nbytes / seconds * 2 * (n - 1) / n
