"""Diagnosis: 03.values-differ

Half remembered: there was a square root in some formula with a best size of a message.
"""


def half_bandwidth_bytes(alpha, beta):
    return (alpha / beta) ** 0.5
