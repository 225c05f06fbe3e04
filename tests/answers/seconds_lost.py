"""Answers to seconds_lost."""

import torch


def by_loops(calls):
    if not calls:
        return []
    lost = [0.0] * len(calls[0])
    for entries in calls:
        last = max(entries)
        culprit = entries.index(last)
        for entered in entries:
            lost[culprit] += last - entered
    return lost


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
== by_loops
by_rank_first, swapped: rows are taken for ranks
~ len(calls[0]) => len(calls)
~ in calls: => in zip(*calls):
who_waits, who-waits: a rank's own wait is charged to it
~ for entered in entries: => for rank, entered in enumerate(entries):
~ lost[culprit] += last - entered => lost[rank] += last - entered
first, first-for-last: the straggler is taken for the first
~         culprit = entries.index(last) =>         culprit = entries.index(min(entries))
every_late_one, every-late-one: whoever is late pays, each from the first
~ for entered in entries: => for rank, entered in enumerate(entries):
~ lost[culprit] += last - entered => lost[rank] += entered - min(entries)
no_calls, only-no-calls: there is always a call, one thinks
-     if not calls:
-         return []
== by_rank
counts, counts: a tally of who was last
~ len(entries) * max(entries) - sum(entries) => 1.0
"""
