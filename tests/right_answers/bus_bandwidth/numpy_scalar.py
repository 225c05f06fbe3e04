"""As a float64 of numpy."""

import numpy as np


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    return np.float64(nbytes) / seconds * np.float64(2 - 2 / n)
