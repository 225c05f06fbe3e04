"""Diagnosis: 03.latency-each-message

The root that calls its recvs one after another, to the letter: only on the way back do latencies
overlap.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return (n - 1) * (alpha + nbytes * beta) + alpha + (n - 1) * nbytes * beta
