"""Diagnosis: 03.n-messages

n ranks, n messages: the root's own tensor is counted, too.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (alpha + n * nbytes * beta)
