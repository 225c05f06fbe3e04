"""Exactly, as a fraction."""

from fractions import Fraction


def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    transfers = (n - 1) * Fraction(nbytes) * Fraction(beta)
    return (n > 1) * 2 * (Fraction(alpha) + transfers)
