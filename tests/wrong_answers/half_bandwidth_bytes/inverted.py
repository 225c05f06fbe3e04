"""Diagnosis: 03.inverted

The ratio, upside down.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return beta / alpha if alpha else 0.0
