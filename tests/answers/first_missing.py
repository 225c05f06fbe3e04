"""Answers to first_missing."""

from collections import Counter


def by_sets(dumps):
    made, members = {}, {}
    for rank, dump in enumerate(dumps):
        for call in dump:
            key = call["group"], call["seq"]
            made.setdefault(key, {})[rank] = call["op"]
            members[key] = set(call["members"])
    missing, waiting = {}, set()
    for key, ops in made.items():
        usual = Counter(ops.values()).most_common(1)[0][0]
        came = {rank for rank, op in ops.items() if op == usual}
        missing[key] = members[key] - came
        if missing[key]:
            waiting |= came
    for key in sorted(missing):
        who = missing[key] - waiting
        if who:
            return *key, sorted(who)
    return None


def by_asking(dumps):
    calls = {(c["group"], c["seq"]): c["members"] for dump in dumps for c in dump}

    def op(rank, key):
        return next((c["op"] for c in dumps[rank] if (c["group"], c["seq"]) == key), None)

    def came(rank, key):
        ops = [o for o in (op(r, key) for r in range(len(dumps))) if o]
        return op(rank, key) is not None and op(rank, key) == max(ops, key=ops.count)

    complete = {k for k, members in calls.items() if all(came(r, k) for r in members)}
    waits = [any(came(r, k) and k not in complete for k in calls) for r in range(len(dumps))]
    for key, members in sorted(calls.items()):
        who = [r for r in sorted(members) if not came(r, key) and not waits[r]]
        if who:
            return key[0], key[1], who
    return None


MISSING = "        who = missing[key] - waiting\n"
WRONG = {
    "victims": ("by_sets", "07.victim", "the last that reports is taken for the cause (verl#1158)",
                (MISSING, "        who = missing[key]\n")),
    "who_reported": ("by_sets", "07.who-reported", "the rank with the timeout in its log is blamed",
                     ("sorted(who)", "sorted(members[key] - missing[key])")),
    "only_silent": ("by_sets", "07.only-silent", "who has made a call is taken for who waits",
                    ("        if missing[key]:\n            waiting", "        waiting")),
    "first_op": ("by_sets", "07.another-op", "rank 0 is taken for the majority",
                 ("Counter(ops.values()).most_common(1)[0][0]", "next(iter(ops.values()))")),
    "nobody": ("by_sets", "07.gives-up", "the first incomplete call, even if nobody is to blame",
               ("        if who:\n            return *key, sorted(who)",
                "        if missing[key]:\n            return *key, sorted(who)")),
    "everybody": ("by_sets", "07.not-members", "groups are ignored",
                  ('set(call["members"])', "set(range(len(dumps)))")),
    "not_sorted_by_group": ("by_asking", "07.not-first", "calls are looked at in the order in "
                            "which they come", ("sorted(calls.items())", "calls.items()")),
    "a_set": ("by_sets", "07.container", "ranks are a set in the code, and stay one",
              ("sorted(who)", "who")),
    "last_call": ("by_sets", "07.last-call", "who has gone on to another call does not wait",
                  ("            waiting |= came", "            waiting |= {r for r in came if "
                   "(dumps[r][-1]['group'], dumps[r][-1]['seq']) == key}")),
    "victims_and_everybody": ("by_sets", "07.victim", "two at once: neither groups nor who waits",
                              (MISSING, "        who = missing[key]\n"),
                              ("missing[key] = members[key] - came",
                               "missing[key] = set(range(len(dumps))) - came")),
    "ties_by_name": ("by_sets", "07.tie", "max() of names decides between as many",
                     ("Counter(ops.values()).most_common(1)[0][0]",
                      "max(ops.values(), key=lambda o: ([*ops.values()].count(o), o))")),
}  # fmt: skip
