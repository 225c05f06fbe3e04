"""Diagnosis: 03.values-differ

int() turns 2.5 bytes, a mean over many messages, into 2.
"""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n <= 1:
        return 0.0
    queue = (n - 1) * int(nbytes)  # bytes that pass through the root's link, one after the other
    return 2 * alpha + 2 * queue * beta
