"""Diagnosis: 04.latency-once

One start, then data in a stream.
"""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return alpha + 2 * (n - 1) * nbytes / n * beta
