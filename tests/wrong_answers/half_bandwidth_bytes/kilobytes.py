"""Diagnosis: 03.kilo

In kB, which reads better.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return alpha / beta / 1000
