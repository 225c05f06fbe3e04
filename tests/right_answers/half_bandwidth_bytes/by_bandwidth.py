"""Latency times bandwidth: what could have been sent in the meantime."""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    bandwidth = 1 / beta
    return alpha * bandwidth
