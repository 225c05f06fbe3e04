"""Diagnosis: 03.bits

In bits, as networks are sold.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return 8 * alpha / beta
