"""alpha = S beta."""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    return alpha / beta
