"""Diagnosis: 04.remembers

Remembered by the number of ranks and bytes alone: another link has the first one's time.
"""

_memo = {}


def ring_seconds(n, nbytes, alpha, beta):
    if (n, nbytes) not in _memo:
        _memo[n, nbytes] = 2 * (n - 1) * (alpha + nbytes / n * beta)
    return _memo[n, nbytes]
