"""Diagnosis: 03.alone

With n = 1 the formula leaves twice the latency of a message that nobody sends.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * (alpha + (n - 1) * nbytes * beta)
