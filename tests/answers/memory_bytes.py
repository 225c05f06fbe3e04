"""Answers to memory_bytes."""


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
== solution
all_alive, order: every micro-batch is kept until its backward
~ m if plan["schedule"] == "gpipe" else min(m, pp) => m
inputs_alone, one-more: what is computed again is forgotten
~ 2 * tokens * width + layer => 2 * tokens * width
"""
