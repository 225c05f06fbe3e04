"""Diagnosis: 03.values-differ

As if everybody sent to everybody: the messages of n(n−1)/2 pairs, one after the other.
"""


def star_seconds(n, nbytes, alpha, beta):
    return 2 * (alpha + n * (n - 1) / 2 * nbytes * beta) if n > 1 else 0.0
