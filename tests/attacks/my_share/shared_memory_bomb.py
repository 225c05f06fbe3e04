"""Take memory that is shared with nobody, in maps that a limit on data does not count (at most 2 GB)."""

kept = []


def my_share(n_items):
    import mmap
    import time

    for _ in range(128):
        block = mmap.mmap(-1, 16 << 20)
        for at in range(0, 16 << 20, 4096):
            block[at] = 1
        kept.append(block)
    for _ in range(20):
        sum(range(10**6))
    return None
