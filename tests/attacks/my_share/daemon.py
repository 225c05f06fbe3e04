"""Leave a process behind that has left session, group and parent."""


def my_share(n_items):
    import ctypes

    libc = ctypes.CDLL(None)
    if libc.fork() == 0:
        libc.setsid()
        if libc.fork() == 0:
            libc.sleep(60)
        libc._exit(0)
    return None
