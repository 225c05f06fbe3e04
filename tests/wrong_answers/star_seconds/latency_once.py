"""Diagnosis: 03.latency-once

One exchange, one start: as if the sum could set off before the last tensor has come.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return alpha + 2 * (n - 1) * nbytes * beta
