"""Begin a message, and send a byte of it now and then."""


def my_share(n_items):
    import gc
    import select

    (talk,) = (t.sock for t in gc.get_objects() if type(t).__name__ == "Talk")
    while True:
        talk.sendall(b" ")
        select.select([], [], [], 0.05)
