"""Answers to seconds_lost."""

import torch


def by_rank(calls):
    def waits(entries):
        return len(entries) * max(entries) - sum(entries)

    n = len(calls[0]) if calls else 0
    return [sum(waits(e) for e in calls if e.index(max(e)) == rank) + 0.0 for rank in range(n)]


def by_tensors(calls):
    times = torch.tensor(calls, dtype=torch.float64)
    if times.numel() == 0:
        return []
    lost = torch.zeros(times.shape[1], dtype=torch.float64)
    for entries in times:
        last = entries.max()
        culprit = (entries == last).nonzero()[0, 0]
        lost[culprit] += (last - entries).sum()
    return lost.tolist()


WRONG = """
== solution
who_waits, who-waits: a rank's own wait is charged to it
- lost[entered.index(last)] += sum(last - mine for mine in entered)
+ lost = [seconds + last - mine for seconds, mine in zip(lost, entered)]
no_calls, only-no-calls: there is always a call, one thinks
~  if calls else [] =>
"""
