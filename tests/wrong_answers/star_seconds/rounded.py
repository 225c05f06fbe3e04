"""Diagnosis: 03.rounded

A time looks better with a few digits.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return round(2 * (alpha + (n - 1) * nbytes * beta), 4)
