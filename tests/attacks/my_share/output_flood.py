"""Print 50 MB, by every way there is."""


def my_share(n_items):
    import os
    import sys

    for _ in range(50):
        print("x" * (1 << 19))
        sys.stderr.write("y" * (1 << 18))
        os.write(1, b"z" * (1 << 18))
    return None
