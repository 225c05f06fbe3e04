"""Diagnosis: 03.swapped

Two small numbers with Greek names, in the wrong places.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (beta + (n - 1) * nbytes * alpha)
