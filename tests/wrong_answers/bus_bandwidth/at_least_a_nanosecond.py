"""Diagnosis: 03.values-differ

No time is taken to be shorter than a nanosecond, against a division by 0 that cannot come.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return 2 * (n - 1) / n * nbytes / max(seconds, 1e-9)
