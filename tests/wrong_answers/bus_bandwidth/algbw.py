"""Diagnosis: 03.algbw

Bytes over seconds, as for one message. nccl-tests calls it algbw, and its page on performance says
why that is no measure for a collective.
"""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    if n == 1:
        return 0.0
    return nbytes / seconds
