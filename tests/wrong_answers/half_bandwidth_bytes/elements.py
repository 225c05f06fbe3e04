"""Diagnosis: 03.elements

How many numbers that is, in float32.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return alpha / beta / 4
