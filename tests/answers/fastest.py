"""Answers to fastest."""

import math


def table(n, nbytes, alpha, beta):
    if n == 1:
        return "star"
    low, whole = math.floor(math.log2(n)), alpha + nbytes * beta
    times = {
        "star": 2 * (alpha + (n - 1) * nbytes * beta),
        "doubling": (low + 2 * (n != 2**low)) * whole,
        "ring": 2 * (n - 1) * (alpha + nbytes / n * beta),
        "tree": 2 * math.ceil(math.log2(n)) * whole,
    }
    return min(times, key=times.get)


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
== table
no_extra_rounds, extra-rounds: ⌊log₂ n⌋ for every n
~  + 2 * (n != 2**low) =>
star_of_n, star-transfers: n tensors pass the root's link, one thinks
~ alpha + (n - 1) * nbytes => alpha + n * nbytes
rounded_down, whole-tensor: a chunk has whole bytes, one thinks
~ nbytes / n => nbytes // n
queueing_latency, latency-each-message: one message after another
~ 2 * (alpha + (n - 1) * nbytes * beta) => 2 * (n - 1) * (alpha + nbytes * beta)
alone, only-n-is-1: one rank is not thought of
~ if n == 1: => if n == 0:
== one_by_one
capital, no-such-name: written as a title is
~ return name => return name.title()
"""
