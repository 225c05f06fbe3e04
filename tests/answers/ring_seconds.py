"""Answers to ring_seconds."""

import math


def step_by_step(n, nbytes, alpha, beta):
    return math.fsum(alpha + beta * nbytes / n for _ in range(2 * n - 2))


def two_terms(n, nbytes, alpha, beta):
    steps = 2 * (n - 1)
    return steps * alpha + nbytes * beta * steps / n


WRONG = """
== solution
one_phase, one-phase: once round the ring
~ 2 * (n - 1) => (n - 1)
== two_terms
transfer_once, values-differ: each step's latency, and the bytes as if the tensor went by in one go
~ nbytes * beta * steps / n => nbytes * beta
"""
