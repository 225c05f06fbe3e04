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


ADDS = "lost[culprit] += last - entered"
WRONG = {
    "by_rank_first": ("by_loops", "11.swapped", "rows are taken for ranks",
                      ("len(calls[0])", "len(calls)"), ("in calls:\n", "in zip(*calls):\n")),
    "who_waits": ("by_loops", "11.who-waits", "a rank's own wait is charged to it",
                  ("for entered in entries:", "for rank, entered in enumerate(entries):"),
                  (ADDS, "lost[rank] += last - entered")),
    "first": ("by_loops", "11.first-for-last", "the straggler is taken for the first",
              ("last = max(entries)\n        culprit = entries.index(last)",
               "last = max(entries)\n        culprit = entries.index(min(entries))")),
    "every_late_one": ("by_loops", "11.every-late-one", "whoever is late pays, each from the first",
                       ("for entered in entries:", "for rank, entered in enumerate(entries):"),
                       (ADDS, "lost[rank] += entered - min(entries)")),
    "runner_up": ("by_loops", "11.only-one", "the distance to the one before is the delay",
                  ("        for entered in entries:\n            " + ADDS,
                   "        lost[culprit] += last - sorted(entries)[-2:][0]")),
    "by_call": ("by_loops", "11.by-call", "the index at hand is that of the call",
                ("for entries in calls:", "for k, entries in enumerate(calls):"),
                (ADDS, "lost[k % len(lost)] += last - entered")),
    "counts": ("by_rank", "11.counts", "a tally of who was last",
               ("len(entries) * max(entries) - sum(entries)", "1.0")),
    "since_0": ("by_loops", "11.since-the-start", "all are thought to have come at 0",
                (ADDS, "lost[culprit] += last * (entered < last)")),
    "remembers": ("by_rank", "11.only-calls", "a default value is made once",
                  ("(calls):", "(calls, seen=[]):"),
                  ("    return [", "    seen += [e for e in calls if len(e) == n]\n    return ["),
                  ("for e in calls if e.index", "for e in seen if len(e) == n and e.index")),
    "from_zero": ("by_loops", "11.from-zero", "the search for the last begins at 0",
                  ("last = max(entries)", "last = max(0.0, *entries)"),
                  ("entries.index(last)", "[max(0.0, e) for e in entries].index(last)")),
    "no_calls": ("by_loops", "11.only-no-calls", "there is always a call, one thinks",
                 ("    if not calls:\n        return []\n", "")),
    "mean_and_ties": ("by_rank", "11.to-the-mean", "two at once: the mean, and the last of ties",
                      ("len(entries) * max(entries) - sum(entries)",
                       "max(entries) - sum(entries) / len(entries)"),
                      ("e.index(max(e)) == rank",
                       "max(range(n), key=lambda r: (e[r], r)) == rank")),
}  # fmt: skip
