"""Diagnosis: 00.same-for-all

The rank never comes into it.
"""


def my_share(n_items: int) -> range:
    return range(n_items)
