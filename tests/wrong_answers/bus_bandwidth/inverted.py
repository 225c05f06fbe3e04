"""Diagnosis: 03.inverted

The factor is divided by, as when the time is worked out from the bandwidth.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    if n == 1:
        return 0.0
    return nbytes / seconds * n / (2 * (n - 1))
