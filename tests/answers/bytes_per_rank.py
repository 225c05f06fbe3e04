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


WRONG = {
    "float32": ("by_stage", "13.another-size", "a weight is a float32",
                ('"weights": 2', '"weights": 4'), ('"gradients": 2', '"gradients": 4')),
    "a_stage_early": ("by_stage", "13.too-early", "stages are counted from 0",
                      ("stage > 2", "stage >= 2"), ("stage > 1", "stage >= 1"),
                      ("stage > 0", "stage >= 0")),
    "weights_before": ("in_order", "13.swapped", "the table is read from the left",
                       ('{"states": 12, "gradients": 2, "weights": 2}',
                        '{"weights": 2, "gradients": 2, "states": 12}')),
    "floors": ("by_stage", "13.rounded-down", "// divides whole numbers",
               ("math.ceil(params / n)", "params // n")),
    "averages_alone": ("in_order", "13.no-master", "two averages of 4 bytes",
                       ('"states": 12', '"states": 8')),
    "all_float32": ("in_order", "13.all-float32", "plain Adam is known from lesson 05",
                    ('{"states": 12, "gradients": 2, "weights": 2}',
                     '{"states": 8, "gradients": 4, "weights": 4}')),
    "master_is_a_weight": ("in_order", "13.master-under-weights", "a copy of a weight is a weight",
                           ('{"states": 12, "gradients": 2, "weights": 2}',
                            '{"states": 8, "gradients": 2, "weights": 6}')),
    "one_more": ("by_stage", "13.rounded-too-far", "rounding up is one more",
                 ("math.ceil(params / n)", "params // n + 1")),
}  # fmt: skip
