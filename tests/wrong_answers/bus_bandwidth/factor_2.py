"""Diagnosis: 03.factor-2

In and out: twice the tensor. That is where the factor goes with very many ranks.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    if n == 1:
        return 0.0
    return 2 * nbytes / seconds
