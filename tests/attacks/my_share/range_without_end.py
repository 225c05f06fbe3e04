"""Return a block that takes years to look through."""


def my_share(n_items):
    return range(10**30)
