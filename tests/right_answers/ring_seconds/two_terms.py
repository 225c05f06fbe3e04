"""Latency and transfer apart."""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    steps = 2 * (n - 1)
    latency = steps * alpha
    transfer = nbytes * beta * steps / n
    return latency + transfer
