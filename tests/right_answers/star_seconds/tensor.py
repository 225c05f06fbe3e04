"""As a tensor of no dimensions, in float64."""

import torch


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    a, b = torch.tensor([alpha, beta], dtype=torch.float64)
    return (2 * a + 2 * (n - 1) * nbytes * b) * (n != 1)
