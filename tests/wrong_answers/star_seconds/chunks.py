"""Diagnosis: 03.chunks

The ring's S/n, taken over into a star, where every rank sends its whole tensor.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (alpha + (n - 1) * nbytes / n * beta)
