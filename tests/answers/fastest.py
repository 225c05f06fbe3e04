"""Answers to fastest."""

import math


def one_by_one(n, nbytes, alpha, beta):
    best, name = math.inf, "star"
    up = (n - 1).bit_length()
    down = n.bit_length() - 1
    rounds = {"doubling": down if up == down else down + 2, "tree": 2 * up}
    for way in ["star", "doubling", "ring", "tree"]:
        if way == "star":
            seconds = 0 if n == 1 else 2 * alpha + 2 * (n - 1) * nbytes * beta
        elif way == "ring":
            seconds = 2 * (n - 1) * (alpha + nbytes * beta / n)
        else:
            seconds = rounds[way] * (alpha + nbytes * beta)
        if seconds < best:
            best, name = seconds, way
    return name


WRONG = """
== solution
no_extra_rounds, extra-rounds: ⌊log₂ n⌋ for every n
~ (down if down == up else down + 2) => down
== one_by_one
capital, no-such-name: written as a title is
~ return name => return name.title()
"""
