"""Take memory in pieces, and keep it (at most 2 GB)."""

kept = []


def my_share(n_items):
    for _ in range(128):
        kept.append(bytearray(b"x" * (16 << 20)))
    return None
