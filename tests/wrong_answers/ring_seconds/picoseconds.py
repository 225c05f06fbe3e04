"""Diagnosis: 04.values-differ

Rounded to a picosecond, against noise in the last digits.
"""


def ring_seconds(n: int, nbytes: int, alpha: float, beta: float) -> float:
    seconds = 2 * (n - 1) * (alpha + nbytes / n * beta)
    return round(seconds, 12)
