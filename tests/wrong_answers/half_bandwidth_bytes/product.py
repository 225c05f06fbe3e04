"""Diagnosis: 03.product

beta taken for a bandwidth: latency times bandwidth is right, and beta is one over it.
"""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return alpha * beta
