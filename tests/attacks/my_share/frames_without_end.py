"""Announce a frame of 4 GB, and send nothing of it."""


def my_share(n_items):
    import gc
    import socket
    import struct

    for thing in gc.get_objects():
        if isinstance(thing, socket.socket):
            thing.sendall(struct.pack("<I", 2**32 - 1))
    return None
