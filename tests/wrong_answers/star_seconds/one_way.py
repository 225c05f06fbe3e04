"""Diagnosis: 03.one-way

The sum is there when the root has it, one thinks; the others have to get it, too.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return alpha + (n - 1) * nbytes * beta
