"""Never come back, and swallow whatever is raised to end it."""


def my_share(n_items):
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
