"""Diagnosis: 04.whole-tensor

S is the size of the tensor, so it goes into the formula.
"""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * (n - 1) * (alpha + nbytes * beta)
