"""Latencies overlap, transfers queue, and it goes there and back."""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    if n == 1:
        return 0.0
    return 2 * (alpha + (n - 1) * nbytes * beta)
