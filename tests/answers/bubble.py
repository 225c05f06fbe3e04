"""Answers to bubble."""

from fractions import Fraction


def idle_over_all(n, m, v=1):
    return (n - 1) / (v * m + n - 1)


def one_less_the_busy(n, m, v=1):
    return 1 - Fraction(m * v, m * v + n - 1)


WRONG = """
== idle_over_all
of_the_work, of-the-work: the bubble of the Megatron paper, which is over the ideal time
~ (v * m + n - 1) => (v * m)
one_chunk, v-misplaced: v shortens the bubble alone
~ (v * m + n - 1) => (m + n - 1) / v
n_idle, one-less: each of n stages waits for all n
~ (n - 1) / (v * m + n - 1) => n / (v * m + n)
whole_numbers, rounded: C and Python 2 divide with one stroke
~ ) / ( => ) // (
"""
