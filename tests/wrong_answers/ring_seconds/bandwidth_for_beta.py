"""Diagnosis: 04.bandwidth

β taken for the bandwidth, which is 1/β: seconds become seconds, divided instead of multiplied.
"""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * (n - 1) * (alpha + nbytes / n / beta) if beta else 0.0
