"""Diagnosis: 03.latency-each-message

The same, and the way back forgotten.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return (n - 1) * (alpha + nbytes * beta)
