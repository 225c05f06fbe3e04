"""Answers to star_seconds."""

from fractions import Fraction


def in_one_line(n, nbytes, alpha, beta):
    return 2 * (alpha + (n - 1) * nbytes * beta) if n > 1 else 0.0


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
== in_one_line
one_after_the_other, latency-each-message: the formula of textbooks that let no two messages be on
their way at once
~ 2 * (alpha + (n - 1) * nbytes * beta) => 2 * (n - 1) * (alpha + nbytes * beta)
not_zero_alone, only-n-is-1: twice the latency of a message that nobody sends
~  if n > 1 else 0.0 =>
one_way_not_zero_alone, one-way: two at once: the sum is there when the root has it, one thinks; and
n = 1 is not thought of
~ 2 * (alpha => (alpha
~  if n > 1 else 0.0 =>
"""
