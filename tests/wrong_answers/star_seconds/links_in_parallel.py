"""Diagnosis: 03.parallel

Everybody sends at the same time, so one message's time is all it takes: the n - 1 messages share
the root's one link.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (alpha + nbytes * beta)
