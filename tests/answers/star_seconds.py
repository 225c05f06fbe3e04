"""Answers to star_seconds."""

from fractions import Fraction


def message_by_message(n, nbytes, alpha, beta):
    clock = 0.0
    for _ in range(2):  # into the root, out of it
        start, free = clock, 0.0
        for _ in range(n - 1):
            clock = free = max(free, start + alpha) + nbytes * beta
    return clock


def exactly(n, nbytes, alpha, beta):
    transfers = (n - 1) * Fraction(nbytes) * Fraction(beta)
    return (n > 1) * 2 * (Fraction(alpha) + transfers)


WRONG = """
== solution
not_zero_alone, only-n-is-1: twice the latency of a message that nobody sends
-     if n == 1:
-         return 0.0
one_way_not_zero_alone, one-way: two at once: the sum is there when the root has it, one thinks; and
n = 1 is not thought of
~ return 2 * one_way => return one_way
-     if n == 1:
-         return 0.0
"""
