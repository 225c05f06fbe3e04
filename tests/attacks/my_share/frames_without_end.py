"""Announce a frame of 4 GB, and send nothing of it."""


def my_share(n_items):
    import gc
    import struct

    for thing in gc.get_objects():
        if type(thing).__name__ == "Talk":
            thing.sock.sendall(struct.pack("<I", 2**32 - 1))
    return None
