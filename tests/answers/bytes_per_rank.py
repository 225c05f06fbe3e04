"""Answers to bytes_per_rank."""

import math


def by_stage(params, n, stage):
    part = math.ceil(params / n)
    return {
        "weights": 2 * (part if stage > 2 else params),
        "gradients": 2 * (part if stage > 1 else params),
        "states": 12 * (part if stage > 0 else params),
    }


def in_order(params, n, stage):
    sizes = {"states": 12, "gradients": 2, "weights": 2}
    counts = [(params + n - 1) // n] * stage + [params] * (3 - stage)
    return {name: size * count for (name, size), count in zip(sizes.items(), counts, strict=True)}


WRONG = """
== by_stage
float32, another-size: a weight is a float32
~ "weights": 2 => "weights": 4
~ "gradients": 2 => "gradients": 4
floors, rounded-down: // divides whole numbers
~ math.ceil(params / n) => params // n
== in_order
weights_before, swapped: the table is read from the left
~ {"states": 12, "gradients": 2, "weights": 2} => {"weights": 2, "gradients": 2, "states": 12}
averages_alone, no-master: two averages of 4 bytes
~ "states": 12 => "states": 8
"""
