"""algbw, corrected."""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return nbytes / seconds * 2 * (n - 1) / n
