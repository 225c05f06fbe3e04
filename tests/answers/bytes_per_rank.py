"""Answers to bytes_per_rank."""

import math


def by_stage(params, n, stage):
    part = math.ceil(params / n) if params < 2**50 else -(-params // n)
    return {
        "weights": 2 * (part if stage >= 3 else params),
        "gradients": 2 * (part if stage >= 2 else params),
        "states": 12 * (part if stage >= 1 else params),
    }


def in_a_loop(params, n, stage):
    out = {}
    for number, (name, size) in enumerate([("states", 12), ("gradients", 2), ("weights", 2)]):
        out[name] = size * (-(-params // n) if number < stage else params)
    return out


WRONG = {
    "floors": ("in_a_loop", "13.rounds-down", "// is at hand", ("-(-params // n)", "params // n")),
    "four_bytes": ("in_a_loop", "13.full-precision", "a weight is a float32",
                   ('("weights", 2)', '("weights", 4)')),
    "no_master": ("in_a_loop", "13.no-master", "Adam has two averages",
                  ('("states", 12)', '("states", 8)')),
    "late": ("in_a_loop", "13.one-stage-off", "stages are counted from 0",
             ("number < stage", "number + 1 < stage")),
    "weights_first": ("by_stage", "13.other-order", "weights are thought of first",
                      ("part if stage >= 3", "part if stage >= 1"),
                      ("12 * (part if stage >= 1", "12 * (part if stage >= 3")),
}  # fmt: skip
