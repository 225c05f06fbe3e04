"""Answers to first_missing."""


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
== solution
victims, victim: the last that reports is taken for the cause (verl#1158)
~ if missing[key] - waiting => if missing[key]
~ sorted(missing[key] - waiting) => sorted(missing[key])
a_set, container: ranks are a set in the code, and stay one
~ sorted(missing[key] - waiting) => missing[key] - waiting
"""
