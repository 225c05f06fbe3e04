"""Diagnosis: 04.two-n

One step for each rank, in each half.
"""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * n * (alpha + nbytes / n * beta)
