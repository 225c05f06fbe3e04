"""Answers to bytes_per_rank."""


def in_order(params, n, stage):
    sizes = {"states": 12, "gradients": 2, "weights": 2}
    counts = [(params + n - 1) // n] * stage + [params] * (3 - stage)
    return {name: size * count for (name, size), count in zip(sizes.items(), counts, strict=True)}


WRONG = """
== solution
floors, rounded-down: // divides whole numbers
~ -(-params // n) => params // n
== in_order
averages_alone, no-master: two averages of 4 bytes
~ "states": 12 => "states": 8
"""
