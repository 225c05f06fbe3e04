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
    "n_idle": ("idle_over_all", "15.one-less", "each of n stages waits for all n",
               ("(n - 1) / (v * m + n - 1)", "n / (v * m + n)")),
    "percent": ("idle_over_all", "15.percent", "bubbles are told in percent",
                ("return (n - 1)", "return 100 * (n - 1)")),
    "v_times_as_long": ("idle_over_all", "15.v-misplaced", "v stages are v times as many to fill",
                        ("(n - 1) / (v * m + n - 1)", "v * (n - 1) / (m + v * (n - 1))")),
    "whole_numbers": ("idle_over_all", "15.rounded", "C and Python 2 divide with one stroke",
                      (") / (", ") // (")),
    "busy_share": ("one_less_the_busy", "15.busy", "one less is forgotten", ("1 - ", "")),
}  # fmt: skip
