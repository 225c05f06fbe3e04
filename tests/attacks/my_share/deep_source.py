"""A source that is hard on whoever parses it."""


def my_share(n_items):
    return 1
