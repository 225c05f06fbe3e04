"""Mark so many stretches of time that nobody can draw them."""


def my_share(n_items):
    from course_lib import span

    for number in range(100_000):
        with span(f"<b>{number}"):
            pass
    return None
