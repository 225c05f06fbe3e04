"""2(n-1) steps, each a latency and one chunk."""


def ring_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * (n - 1) * (alpha + nbytes / n * beta)
