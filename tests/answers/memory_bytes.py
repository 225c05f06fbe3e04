"""Answers to memory_bytes."""

import math


def sum_of_three(model, plan):
    dp, tp, pp, m = plan["dp"], plan["tp"], plan["pp"], plan["m"]
    width, layers = model["width"], model["layers"] // pp
    weights = layers * 12 * width**2 // tp
    kept = 2 * weights + 2 * weights // (dp if plan["zero"] >= 2 else 1)
    kept += 12 * weights // (dp if plan["zero"] >= 1 else 1)
    tokens = model["batch"] // (dp * m) * model["sequence"]
    whole = 2 * tokens * width * (4 + 12 / tp)
    alive = min(m, pp) if plan["schedule"] == "1f1b" else m
    if plan["checkpoint"]:
        return int(kept + alive * layers * 2 * tokens * width + whole)
    return int(kept + alive * layers * whole)


def by_the_token(model, plan):
    tokens = model["batch"] * model["sequence"] / plan["dp"] / plan["m"]
    per_token = 8 + 24 / plan["tp"]
    layers = model["layers"] / plan["pp"]
    alive = layers * {"gpipe": plan["m"], "1f1b": min(plan["m"], plan["pp"])}[plan["schedule"]]
    numbers = alive * (2 if plan["checkpoint"] else per_token)
    numbers += per_token if plan["checkpoint"] else 0
    divided = [0, 12, 14][plan["zero"]]
    bytes_each = 16 - divided + divided / plan["dp"]
    weights = 12 * model["width"] ** 2 * layers / plan["tp"]
    return round(weights * bytes_each + tokens * model["width"] * numbers)


WRONG = """
== sum_of_three
no_master, master: Adam has two averages
~ 12 * weights => 8 * weights
no_zero, zero: the stage is not looked at
~ (dp if plan["zero"] >= 2 else 1) => 1
~ (dp if plan["zero"] >= 1 else 1) => 1
all_layers, whole-model: a model has all its layers
~ model["layers"] // pp => model["layers"]
all_alive, order: every micro-batch is kept until its backward
~ min(m, pp) if plan["schedule"] == "1f1b" else m => m
inputs_alone, one-more: what is computed again is forgotten
~ 2 * tokens * width + whole) => 2 * tokens * width)
tp_divides_all, tp: a layer is divided
~ (4 + 12 / tp) => 16 / tp
whole_batch, m: the batch of a replica
~ // (dp * m) => // dp
== by_the_token
never_again, not-again: checkpointing is forgotten
~ (2 if plan["checkpoint"] else per_token) => per_token
~ per_token if plan["checkpoint"] else 0 => 0
"""
