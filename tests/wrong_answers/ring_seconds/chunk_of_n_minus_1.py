"""Diagnosis: 04.chunk-of-n-minus-1

n - 1 steps, so n - 1 chunks.
"""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (n - 1) * (alpha + nbytes / (n - 1) * beta)
