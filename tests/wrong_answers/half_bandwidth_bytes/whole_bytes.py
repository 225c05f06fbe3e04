"""Diagnosis: 03.rounded

A message has a whole number of bytes.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return alpha // beta
