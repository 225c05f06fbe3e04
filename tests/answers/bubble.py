"""Answers to bubble."""

from fractions import Fraction


def idle_over_all(n, m, v=1):
    return (n - 1) / (v * m + n - 1)


def one_less_the_busy(n, m, v=1):
    return 1 - Fraction(m * v, m * v + n - 1)


WRONG = {
    "of_the_work": ("idle_over_all", "15.of-the-work", "the bubble of the Megatron paper, which is "
                    "over the ideal time", ("(v * m + n - 1)", "(v * m)")),
    "one_chunk": ("idle_over_all", "15.v-misplaced", "v shortens the bubble alone",
                  ("(v * m + n - 1)", "(m + n - 1) / v")),
    "busy_share": ("one_less_the_busy", "15.busy", "one less is forgotten", ("1 - ", "")),
}  # fmt: skip
