"""Answers to bus_bandwidth."""

import numpy as np


def corrected(n, nbytes, seconds):
    return nbytes / seconds * 2 * (n - 1) / n


def least_bytes(n, nbytes, seconds):
    if n < 2:
        return 0
    adding = handing_out = (n - 1) * (nbytes / n)
    return (adding + handing_out) / seconds


def in_numpy(n, nbytes, seconds):
    return np.float64(nbytes) / seconds * np.float64(2 - 2 / n)


WRONG = """
== least_bytes
algbw_alone, only-n-is-1: the special case of one rank turns out as algbw: nothing was sent
~ return 0 => return nbytes / seconds
== corrected
whole_bytes, rounded: whole bytes per second look tidy
~ nbytes / seconds * 2 * (n - 1) / n => round(nbytes / seconds * 2 * (n - 1) / n)
one_phase_in_gb, one-phase: the factor of all_gather, from the same table of nccl-tests, which
prints GB/s
~ * 2 * => *
~ / seconds => / 1e9 / seconds
"""
