"""The least that a rank has to send, by the time that it took."""


def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    if n < 2:
        return 0
    a_chunk = nbytes / n
    adding = handing_out = (n - 1) * a_chunk
    return (adding + handing_out) / seconds
