"""Diagnosis: 03.bits

Networks are sold in bits a second, so the bytes are turned into bits.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (alpha + (n - 1) * 8 * nbytes * beta)
