"""Diagnosis: 03.latency-each-message

As many messages, so as many times the time of one: the formula of textbooks that let no two
messages be on their way at once.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (n - 1) * (alpha + nbytes * beta)
