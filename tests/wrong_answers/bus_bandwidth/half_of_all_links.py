"""Diagnosis: 03.values-differ

Counts the bytes of one half of the work, and those of all links together: two mistakes at once.
"""


def bus_bandwidth(n, nbytes, seconds):
    return nbytes / seconds * (n - 1)
