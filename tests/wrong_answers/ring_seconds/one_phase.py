"""Diagnosis: 04.one-phase

Once round the ring.
"""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return (n - 1) * (alpha + nbytes / n * beta)
