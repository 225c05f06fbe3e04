"""Every message followed through the root's two links, as the simulator does it."""


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    clock = 0.0
    for _ in range(2):  # into the root, out of it
        start, free = clock, 0.0
        for _ in range(n - 1):
            free = max(free, start + alpha) + nbytes * beta
            clock = free
    return clock
