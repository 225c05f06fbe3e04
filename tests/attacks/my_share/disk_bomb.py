"""Fill the disk (at most 200 MB)."""


def my_share(n_items):
    for number in range(20):
        try:
            with open(f"/tmp/course-attack-{number}", "wb") as file:
                for _ in range(10):
                    file.write(b"x" * (1 << 20))
        except OSError:
            continue
    return None
