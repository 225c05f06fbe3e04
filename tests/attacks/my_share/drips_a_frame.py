"""Announce a frame of 1 MB, and send a byte of it now and then."""


def my_share(n_items):
    import gc
    import select
    import struct

    (talk,) = (t.sock for t in gc.get_objects() if type(t).__name__ == "Talk")
    talk.sendall(struct.pack("<I", 1 << 20))
    while True:
        talk.sendall(b" ")
        select.select([], [], [], 0.05)
