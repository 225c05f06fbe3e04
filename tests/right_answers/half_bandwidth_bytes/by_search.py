"""Doubling and halving until transfer and latency are equal."""


def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    low, high = 0.0, 1.0
    while high * beta < alpha:
        low, high = high, 2 * high
    for _ in range(2000):
        middle = (low + high) / 2
        if middle * beta < alpha:
            low = middle
        else:
            high = middle
    return high
