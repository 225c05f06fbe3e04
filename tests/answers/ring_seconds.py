"""Answers to ring_seconds."""

import math


def in_one_line(n, nbytes, alpha, beta):
    return 2 * (n - 1) * (alpha + nbytes / n * beta)


def step_by_step(n, nbytes, alpha, beta):
    return math.fsum(alpha + beta * nbytes / n for _ in range(2 * n - 2))


def two_terms(n, nbytes, alpha, beta):
    steps = 2 * (n - 1)
    return steps * alpha + nbytes * beta * steps / n


WRONG = """
== in_one_line
one_phase, one-phase: once round the ring
~ 2 * (n - 1) => (n - 1)
a_step_at_least, only-n-is-1: at least one step there must be
~ (n - 1) => max(1, n - 1)
whole_bytes, rounded-down: bytes are whole
~ nbytes / n => nbytes // n
== two_terms
transfer_once, values-differ: each step's latency, and the bytes as if the tensor went by in one go
~ nbytes * beta * steps / n => nbytes * beta
"""
