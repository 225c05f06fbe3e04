"""Diagnosis: 03.rounded

A bandwidth in whole bytes a second looks tidy; the value is asked for as it is.
"""


def bus_bandwidth(n, nbytes, seconds):
    return round(nbytes / seconds * 2 * (n - 1) / n)
