"""Diagnosis: 03.rounded

Bytes are whole, so the rate is made whole, too.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return int(nbytes / seconds * 2 * (n - 1) / n)
