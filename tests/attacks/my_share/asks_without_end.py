"""Ask the judge for the time, for ever."""


def my_share(n_items):
    import time

    while True:
        time.time()
