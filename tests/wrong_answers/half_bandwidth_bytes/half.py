"""Diagnosis: 03.half

Half the bandwidth, so half of something.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return alpha / beta / 2
