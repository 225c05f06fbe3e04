"""Answers to bubble."""

from fractions import Fraction


def one_less_the_busy(n, m, v=1):
    return 1 - Fraction(m * v, m * v + n - 1)


WRONG = """
== solution
of_the_work, of-the-work: the bubble of the Megatron paper, which is over the ideal time
~ (v * m + n - 1) => (v * m)
whole_numbers, rounded: C and Python 2 divide with one stroke
~ ) / ( => ) // (
"""
