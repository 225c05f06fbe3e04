"""Diagnosis: 03.twice

Half the bandwidth means twice the time of the transfer, so twice the bytes, one thinks.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return 2 * alpha / beta
