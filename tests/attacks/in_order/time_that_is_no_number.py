"""Spend a time that is no number: then no rank begins before another one ends."""


def in_order(work):
    from course_lib import compute

    for seconds in (float("nan"), float("inf"), 1e300):
        try:
            compute(seconds)
        except ValueError:
            continue
    work()
