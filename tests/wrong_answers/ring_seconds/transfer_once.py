"""Diagnosis: 04.values-differ

Pays for every step's latency, and for the bytes as if the tensor went by in one go.
"""


def ring_seconds(n, nbytes, alpha, beta):
    return 2 * (n - 1) * alpha + nbytes * beta if n > 1 else 0.0
