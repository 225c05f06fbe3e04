"""Diagnosis: 03.chunks

The formula of the chunked ring, which people have met before.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * (n - 1) * (alpha + nbytes / n * beta)
