"""Step after step, added up."""

import math


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return math.fsum(alpha + beta * nbytes / n for _ in range(2 * n - 2))
