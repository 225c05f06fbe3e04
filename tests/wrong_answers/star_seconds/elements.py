"""Diagnosis: 03.elements

S as a number of float32 elements, turned into bytes once more.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (alpha + (n - 1) * 4 * nbytes * beta)
