"""Diagnosis: 03.beta-is-bandwidth

Data sheets state bandwidths, and one divides by a bandwidth.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (alpha + (n - 1) * nbytes / beta)
