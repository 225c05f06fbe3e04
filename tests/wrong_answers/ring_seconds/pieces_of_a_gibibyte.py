"""Diagnosis: 04.values-differ

Chunks above a gibibyte are thought of as several messages, each with its latency.
"""

import math


def ring_seconds(n: int, nbytes: int, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    chunk = nbytes / n
    pieces = max(1, math.ceil(chunk / 2**30))  # no transport takes more at once
    return 2 * (n - 1) * (pieces * alpha + chunk * beta)
