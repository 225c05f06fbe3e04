"""Diagnosis: 04.alone

At least one step there must be.
"""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * max(1, n - 1) * (alpha + nbytes / n * beta)
