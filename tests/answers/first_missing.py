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


WRONG = """
== by_sets
victims, victim: the last that reports is taken for the cause (verl#1158)
~         who = missing[key] - waiting =>         who = missing[key]
who_reported, who-reported: the rank with the timeout in its log is blamed
~ sorted(who) => sorted(members[key] - missing[key])
only_silent, only-silent: who has made a call is taken for who waits
-         if missing[key]:
-             waiting
+         waiting
nobody, gives-up: the first incomplete call, even if nobody is to blame
~         if who: =>         if missing[key]:
everybody, not-members: groups are ignored
~ set(call["members"]) => set(range(len(dumps)))
a_set, container: ranks are a set in the code, and stay one
~ sorted(who) => who
"""
