"""Answers to half_bandwidth_bytes."""


def by_search(alpha, beta):
    low, high = 0.0, 1.0
    while high * beta < alpha:
        low, high = high, 2 * high
    for _ in range(2000):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * beta < alpha else (low, middle)
    return high


WRONG = """
== solution
whole_bytes, rounded: a message has a whole number of bytes
~ alpha / beta => alpha // beta
half_in_whole_bytes, half-or-twice: two at once: half of the bandwidth is taken for half of the
size, in whole bytes
~ alpha / => 0.5 * alpha /
~ / beta => // beta
"""
